"""Connections as users declare them: their kinds, a registry, and parsers of URLs and configuration entries."""

from ematix_flow.declare.connections.base import Connection
from ematix_flow.declare.connections.brokers import (
    KafkaConnection,
    KinesisConnection,
    PubSubConnection,
    RabbitMQConnection,
)
from ematix_flow.declare.connections.databases import (
    DuckDBConnection,
    FileDatabaseConnection,
    MySQLConnection,
    PostgresConnection,
    ServerAddress,
    ServerConnection,
    SQLiteConnection,
)
from ematix_flow.declare.connections.dsn import SCHEMES
from ematix_flow.declare.connections.entries import from_fields, from_url
from ematix_flow.declare.connections.kinds import KINDS
from ematix_flow.declare.connections.lakes import (
    FORMATS,
    BucketConnection,
    DeltaLocalConnection,
    DeltaS3Connection,
    ObjectStoreLocalConnection,
    ObjectStoreS3Connection,
    format_from_path,
)
from ematix_flow.declare.connections.registries import GlueSchemaRegistryConnection, SchemaRegistryConnection
from ematix_flow.declare.connections.registry import (
    clear_registry,
    connection,
    get_connection,
    register_connection,
    registered_connections,
    registration_of,
)
from ematix_flow.declare.connections.warehouses import BigQueryConnection, RedshiftConnection, SnowflakeConnection

__all__ = [
    "FORMATS", "KINDS", "SCHEMES", "BigQueryConnection", "BucketConnection", "Connection", "DeltaLocalConnection",
    "DeltaS3Connection", "DuckDBConnection", "FileDatabaseConnection", "GlueSchemaRegistryConnection",
    "KafkaConnection", "KinesisConnection", "MySQLConnection", "ObjectStoreLocalConnection", "ObjectStoreS3Connection",
    "PostgresConnection", "PubSubConnection", "RabbitMQConnection", "RedshiftConnection", "SQLiteConnection",
    "SchemaRegistryConnection", "ServerAddress", "ServerConnection", "SnowflakeConnection", "clear_registry",
    "connection", "format_from_path", "from_fields", "from_url", "get_connection", "register_connection",
    "registered_connections", "registration_of",
]  # fmt: skip
