"""Connections: one class per kind, the registry of this process, and parsers of URLs."""

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
    clear_registry,
    connection,
    format_from_path,
    from_url,
    get_connection,
    register_connection,
    registered_connections,
)
from ematix_flow.foundation.redact import redact
from ematix_flow.foundation.secrets import expand as resolve

__all__ = [
    "BigQueryConnection", "Connection", "DeltaLocalConnection", "DeltaS3Connection", "DuckDBConnection",
    "GlueSchemaRegistryConnection", "KafkaConnection", "KinesisConnection", "MySQLConnection",
    "ObjectStoreLocalConnection", "ObjectStoreS3Connection", "PostgresConnection", "PubSubConnection",
    "RabbitMQConnection", "RedshiftConnection", "SQLiteConnection", "SchemaRegistryConnection", "SnowflakeConnection",
    "clear_registry", "connection", "format_from_path", "from_url", "get_connection", "redact", "register_connection",
    "registered_connections", "resolve",
]  # fmt: skip
