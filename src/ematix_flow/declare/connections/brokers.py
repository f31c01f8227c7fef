"""Message brokers: Kafka, RabbitMQ, Google Pub/Sub and Amazon Kinesis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ematix_flow.declare.connections.base import Connection, FieldRules
from ematix_flow.declare.connections.registries import GlueSchemaRegistryConnection, SchemaRegistryConnection
from ematix_flow.foundation.redact import redact

_LOGINS = {
    "sasl_plain": ("sasl_plain_username", "sasl_plain_password"),
    "sasl_scram": ("sasl_scram_username", "sasl_scram_password", "sasl_scram_mechanism"),
    "msk_iam": ("msk_iam_region",),
}


_PAYLOADS = ("json", "raw_bytes", "avro", "protobuf")
_Registry = str | SchemaRegistryConnection | GlueSchemaRegistryConnection


class BrokerConnection(Connection):
    """A broker whose messages have one payload format, with schemas in at most one registry.

    Not a dataclass, so that each kind has these fields after its own.
    """

    payload_format: str | None
    schema_registry: _Registry | None

    def _check_registry(self) -> None:
        registry = self.schema_registry
        if isinstance(registry, Connection) and not isinstance(
            registry, (SchemaRegistryConnection, GlueSchemaRegistryConnection)
        ):
            self._wrong("schema_registry", f"is a {registry.kind} connection", hint="name a schema registry")
        if isinstance(registry, GlueSchemaRegistryConnection) and self.payload_format not in ("avro", "protobuf"):
            self._wrong(
                "payload_format", "must say avro or protobuf with a Glue registry", hint='add payload_format = "avro"'
            )

    def _check(self) -> None:
        self._check_registry()

    @property
    def consumer_group(self) -> str | None:
        """Return the consumer group that is declared; None for a broker without groups."""
        return None

    def subject_topic(self, place: str) -> str:
        """Return the name under which a schema registry stores the schemas of messages to a place."""
        return place


def payload_format(connection: object) -> str | None:
    """Return the payload format that a broker's connection declares; None for other systems."""
    return connection.payload_format if isinstance(connection, BrokerConnection) else None


def consumer_group(connection: object) -> str | None:
    """Return the consumer group that a broker's connection declares; None for other systems."""
    return connection.consumer_group if isinstance(connection, BrokerConnection) else None


@dataclass(frozen=True)
class KafkaConnection(BrokerConnection):
    """A Kafka cluster, with at most one login method and at most one schema registry."""

    bootstrap_servers: str = ""
    group_id: str | None = None
    payload_format: str | None = None
    auto_offset_reset: str | None = None
    schema_registry_url: str | None = None
    schema_registry: _Registry | None = None
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = None
    sasl_scram_username: str | None = None
    sasl_scram_password: str | None = None
    sasl_scram_mechanism: str | None = None
    msk_iam_region: str | None = None
    tls_ca_path: str | None = None
    tls_cert_path: str | None = None
    tls_key_path: str | None = None

    kind: ClassVar[str] = "kafka"
    rules: ClassVar[FieldRules] = FieldRules(
        required=("bootstrap_servers",),
        examples={"bootstrap_servers": "localhost:9092", "sasl_scram_mechanism": "sha-512"},
        choices={
            "payload_format": _PAYLOADS,
            "auto_offset_reset": ("earliest", "latest"),
            "sasl_scram_mechanism": ("sha-256", "sha-512"),
        },
        urls={"schema_registry_url": ("http", "https")},
        paths=("tls_ca_path", "tls_cert_path", "tls_key_path"),
        links=("schema_registry",),
    )

    @property
    def consumer_group(self) -> str | None:
        return self.group_id

    def _check(self) -> None:
        if self.schema_registry and self.schema_registry_url:
            self._wrong("schema_registry", "excludes schema_registry_url", hint="keep one of the two")
        self._check_registry()
        for fields in _LOGINS.values():
            self._together(*fields)
        self._together("tls_cert_path", "tls_key_path")
        used = [fields[0] for fields in _LOGINS.values() if getattr(self, fields[0])]
        if len(used) > 1:
            self._wrong(used[1], f"excludes {used[0]}", hint="a Kafka connection logs in by at most one of them")


@dataclass(frozen=True)
class RabbitMQConnection(BrokerConnection):
    """A RabbitMQ server."""

    amqp_url: str = ""
    consumer_tag: str | None = None
    payload_format: str | None = None
    schema_registry: _Registry | None = None

    kind: ClassVar[str] = "rabbitmq"
    rules: ClassVar[FieldRules] = FieldRules(
        required=("amqp_url",),
        examples={"amqp_url": "amqp://user:${RABBITMQ_PASSWORD}@localhost:5672/%2f"},
        choices={"payload_format": _PAYLOADS},
        urls={"amqp_url": ("amqp", "amqps")},
        links=("schema_registry",),
    )

    @property
    def dsn(self) -> str:
        return self.amqp_url

    @property
    def label(self) -> str:
        return str(redact("amqp_url", self.amqp_url))


@dataclass(frozen=True)
class PubSubConnection(BrokerConnection):
    """A project of Google Pub/Sub, or its emulator at `endpoint`."""

    project_id: str = ""
    endpoint: str | None = None
    anonymous_auth: bool | str = False
    payload_format: str | None = None
    schema_registry: _Registry | None = None

    kind: ClassVar[str] = "pubsub"
    rules: ClassVar[FieldRules] = FieldRules(
        required=("project_id",),
        examples={"project_id": "my-project"},
        choices={"payload_format": _PAYLOADS},
        booleans=("anonymous_auth",),
        links=("schema_registry",),
    )


@dataclass(frozen=True)
class KinesisConnection(BrokerConnection):
    """A stream of Amazon Kinesis; without keys the machine's own login is used."""

    stream_name: str = ""
    region: str | None = None
    endpoint: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    payload_format: str | None = None
    schema_registry: _Registry | None = None

    kind: ClassVar[str] = "kinesis"
    rules: ClassVar[FieldRules] = FieldRules(
        required=("stream_name",),
        examples={"stream_name": "orders"},
        choices={"payload_format": _PAYLOADS},
        links=("schema_registry",),
    )

    def subject_topic(self, place: str) -> str:
        return self.stream_name or place  # the place is a prefix of partition keys

    def _check(self) -> None:
        self._check_registry()
        self._together("access_key_id", "secret_access_key")
