"""Declarative ETL/ELT and streaming pipelines in Python, running on Apache Spark."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

from ematix_flow.declare.connections import (
    BigQueryConnection,
    Connection,
    DeltaLocalConnection,
    DeltaS3Connection,
    DuckDBConnection,
    GlueSchemaRegistryConnection,
    KafkaConnection,
    KinesisConnection,
    MySQLConnection,
    ObjectStoreLocalConnection,
    ObjectStoreS3Connection,
    PostgresConnection,
    PubSubConnection,
    RabbitMQConnection,
    RedshiftConnection,
    SchemaRegistryConnection,
    SnowflakeConnection,
    SQLiteConnection,
    get_connection,
    register_connection,
    registered_connections,
)
from ematix_flow.declare.endpoints import Source, Target
from ematix_flow.declare.markers import natural_key, nullable, pk
from ematix_flow.declare.streams.parts import CDC, Aggregation, Join, Lookup, StateStore, Watermark, Window
from ematix_flow.declare.table import ManagedTable
from ematix_flow.declare.types import (
    JSON,
    JSONB,
    UUID,
    BigInt,
    Boolean,
    Bytes,
    Column,
    Date,
    Double,
    Float,
    Integer,
    Numeric,
    SmallInt,
    String,
    Text,
    Timestamp,
    TimestampTZ,
)
from ematix_flow.declare.workflow import AllOf, AnyOf, TriggerOp
from ematix_flow.decorators import ematix
from ematix_flow.foundation.secrets import SecretResolver, find_resolvers_with

__all__ = [
    "CDC", "JSON", "JSONB", "UUID", "Aggregation", "AllOf", "Annotated", "AnyOf", "BigInt", "BigQueryConnection",
    "Boolean", "Bytes", "Column", "Connection", "Date", "DeltaLocalConnection", "DeltaS3Connection", "Double",
    "DuckDBConnection", "Float", "GlueSchemaRegistryConnection", "Integer", "Join", "KafkaConnection",
    "KinesisConnection", "Lookup", "ManagedTable", "MySQLConnection", "Numeric", "ObjectStoreLocalConnection",
    "ObjectStoreS3Connection", "PostgresConnection", "PubSubConnection", "PythonAggregateUdfHandle",
    "PythonScalarUdfHandle", "RabbitMQConnection", "RedshiftConnection", "SQLiteConnection",
    "SchemaRegistryConnection", "SmallInt", "SnowflakeConnection", "Source", "StateStore", "String", "Target", "Text",
    "Timestamp", "TimestampTZ", "TriggerOp", "Watermark", "Window", "__version__", "apply_udaf_to_batch",
    "apply_udf_to_batch", "config", "connect", "connections", "ematix", "get_connection", "natural_key", "nullable",
    "pk", "register_connection", "registered_connections", "run_pipeline", "run_streaming_pipeline", "spark_session",
    "streaming", "udaf", "udf",
]  # fmt: skip


_DOORS = (
    "_core", "alerters", "config", "connections", "lineage", "logs", "metrics", "normalize", "pipeline", "preview",
    "quality", "run_log", "secrets", "streaming", "tracing", "transforms",
)  # fmt: skip
_LATER = {
    "run_pipeline": "streaming",
    "run_streaming_pipeline": "streaming",
    "PythonScalarUdfHandle": "udf",
    "apply_udf_to_batch": "udf",
    "udf": "udf",
    "PythonAggregateUdfHandle": "udaf",
    "apply_udaf_to_batch": "udaf",
    "udaf": "udaf",
}
if TYPE_CHECKING:
    from ematix_flow.streaming import run_pipeline, run_streaming_pipeline
    from ematix_flow.udaf import PythonAggregateUdfHandle, apply_udaf_to_batch, udaf
    from ematix_flow.udf import PythonScalarUdfHandle, apply_udf_to_batch, udf


class _Package(ModuleType):
    """The package's module type: keeps `ematix_flow.udf` a decorator although a submodule has that name."""

    def __setattr__(self, name: str, value: object) -> None:
        # Importing a submodule sets it as an attribute of the package and would replace the decorator.
        if name in ("udf", "udaf") and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def _secret_store(prefix: str) -> SecretResolver | None:
    from ematix_flow.secrets.settings import store_for

    return store_for(prefix)


find_resolvers_with(_secret_store)


def __getattr__(name: str) -> object:
    # These names import more than a declaration needs, so they are loaded at first use.
    if name == "__version__":
        from ematix_flow.foundation.packages import __version__

        return __version__
    if name == "connect":
        from ematix_flow.api.connect import connect

        return connect
    if name == "spark_session":
        from ematix_flow.engine.session.session import spark_session

        return spark_session
    if name in _LATER:
        import importlib

        return getattr(importlib.import_module(f"ematix_flow.{_LATER[name]}"), name)
    if name in _DOORS:
        import importlib

        return importlib.import_module(f"ematix_flow.{name}")
    raise AttributeError(f"module 'ematix_flow' has no attribute {name!r}")
