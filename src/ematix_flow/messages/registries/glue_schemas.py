"""Direct access to schemas in Glue for users, and registries that all streams of this process share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ematix_flow.declare.connections import GlueSchemaRegistryConnection
from ematix_flow.foundation.errors import DeclarationError, Unsupported
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.messages.registries.glue import OPENED, GlueRegistry
from ematix_flow.messages.registries.registry import UnknownSchema

_FORMATS = ("AVRO", "PROTOBUF", "JSON")
_LATEST = "LATEST"


@dataclass(frozen=True)
class GlueSchema:
    """One version of a schema."""

    schema_uuid: str
    data_format: str
    schema_definition: str
    schema_arn: str
    version_number: int


def fetch_schema_by_uuid(
    conn: GlueSchemaRegistryConnection, schema_uuid: str, *, _client: Any | None = None
) -> GlueSchema:
    """Return the schema version with this UUID; raise UnknownSchema where there is none."""
    registry = _registry(conn, _client)
    return _glue_schema(registry, f"version {schema_uuid}", SchemaVersionId=schema_uuid)


def fetch_schema_by_name(
    conn: GlueSchemaRegistryConnection, schema_name: str, *, version: int | str = _LATEST, _client: Any | None = None
) -> GlueSchema:
    """Return the newest version of the schema with this name, or the one with this number."""
    registry = _registry(conn, _client)
    if str(version).upper() == _LATEST:
        number: dict[str, Any] = {"LatestVersion": True}
    elif str(version).isdecimal() and int(version) > 0:
        number = {"VersionNumber": int(version)}
    else:
        raise DeclarationError(f"there is no version {version!r} of a schema", hint='write a number, or "LATEST"')
    what = f"{schema_name!r} (version {version})"
    return _glue_schema(registry, what, SchemaId=registry.place(schema_name), SchemaVersionNumber=number)


def register_schema(
    conn: GlueSchemaRegistryConnection,
    *,
    schema_name: str,
    data_format: str,
    schema_definition: str,
    compatibility: str = "BACKWARD",
    description: str | None = None,
    _client: Any | None = None,
) -> GlueSchema:
    """Register this text as the schema's newest version, and return it; the same text again is the same version.

    `compatibility` and `description` apply only when the schema is created.
    """
    kind = data_format.upper()
    if kind not in _FORMATS:
        raise DeclarationError(f"Glue keeps no schemas of {data_format!r}", hint=did_you_mean(kind, _FORMATS))
    registry = _registry(conn, _client)
    options = {"Compatibility": compatibility, **({"Description": description} if description else {})}
    version = registry.added(schema_name, schema_definition, kind, **options)
    return _glue_schema(registry, f"version {version}", SchemaVersionId=version)


def register_glue_schema_lookup_callback(conn: GlueSchemaRegistryConnection) -> None:
    """Open a registry now: the streams of this process that refer to it share its client and its cache."""
    OPENED[conn.registry_name] = (conn, GlueRegistry.of(conn.resolved()))


def unregister_glue_schema_lookup_callback(registry_name: str | None = None) -> None:
    """Remove one shared registry, or all of them; streams that already use it keep it."""
    if registry_name is None:
        OPENED.clear()
    else:
        OPENED.pop(registry_name, None)


def _registry(conn: GlueSchemaRegistryConnection, client: Any | None) -> GlueRegistry:
    return GlueRegistry.of(conn.resolved()) if client is None else GlueRegistry(client, conn.registry_name)


def _glue_schema(registry: GlueRegistry, what: str, **which: Any) -> GlueSchema:
    version = registry.version(**which)
    if version is None:
        raise UnknownSchema(
            f"the registry {registry.label} knows no schema {what}", hint="look at its name, and at the region"
        )
    if str(version["DataFormat"]) not in _FORMATS:
        raise Unsupported(
            f"the registry {registry.label} holds {what} as {version['DataFormat']}, which is not read here",
            hint=f"schemas are of {', '.join(_FORMATS)}",
        )
    return GlueSchema(
        schema_uuid=str(version["SchemaVersionId"]),
        data_format=str(version["DataFormat"]),
        schema_definition=str(version["SchemaDefinition"]),
        schema_arn=str(version.get("SchemaArn", "")),
        version_number=int(version.get("VersionNumber", 0)),
    )
