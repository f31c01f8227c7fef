"""The connection kinds, by name."""

from __future__ import annotations

from ematix_flow.declare.connections.base import Connection
from ematix_flow.declare.connections.brokers import (
    KafkaConnection,
    KinesisConnection,
    PubSubConnection,
    RabbitMQConnection,
)
from ematix_flow.declare.connections.databases import (
    DuckDBConnection,
    MySQLConnection,
    PostgresConnection,
    SQLiteConnection,
)
from ematix_flow.declare.connections.lakes import (
    DeltaLocalConnection,
    DeltaS3Connection,
    ObjectStoreLocalConnection,
    ObjectStoreS3Connection,
)
from ematix_flow.declare.connections.outside import outside_backends, outside_class
from ematix_flow.declare.connections.registries import GlueSchemaRegistryConnection, SchemaRegistryConnection
from ematix_flow.declare.connections.warehouses import BigQueryConnection, RedshiftConnection, SnowflakeConnection
from ematix_flow.foundation.errors import UnknownKeyword
from ematix_flow.foundation.names import valid_names

KINDS: dict[str, type[Connection]] = {
    kind.kind: kind
    for kind in (
        PostgresConnection,
        MySQLConnection,
        SQLiteConnection,
        DuckDBConnection,
        DeltaLocalConnection,
        DeltaS3Connection,
        ObjectStoreLocalConnection,
        ObjectStoreS3Connection,
        KafkaConnection,
        RabbitMQConnection,
        PubSubConnection,
        KinesisConnection,
        SchemaRegistryConnection,
        GlueSchemaRegistryConnection,
        SnowflakeConnection,
        BigQueryConnection,
        RedshiftConnection,
    )
}


def class_of(kind: object) -> type[Connection]:
    """Return the class of a kind; raise an UnknownKeyword with the nearest name for any other text."""
    if isinstance(kind, str) and kind in KINDS:
        return KINDS[kind]
    if isinstance(kind, str) and kind in outside_backends():
        return outside_class(kind)
    valid = sorted({*KINDS, *outside_backends()})
    raise UnknownKeyword(f"there is no connection kind {kind!r}", hint=valid_names(kind, valid))
