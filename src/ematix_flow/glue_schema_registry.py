"""Direct access to schemas of AWS Glue: lookup by UUID or by name, and registration."""

from __future__ import annotations

from ematix_flow.messages.registries.glue_schemas import (
    GlueSchema,
    fetch_schema_by_name,
    fetch_schema_by_uuid,
    register_glue_schema_lookup_callback,
    register_schema,
    unregister_glue_schema_lookup_callback,
)

__all__ = [
    "GlueSchema",
    "fetch_schema_by_name",
    "fetch_schema_by_uuid",
    "register_glue_schema_lookup_callback",
    "register_schema",
    "unregister_glue_schema_lookup_callback",
]
