"""Schema registries: their common interface, and opening the one that a connection refers to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ematix_flow.declare.connections import (
    Connection,
    GlueSchemaRegistryConnection,
    SchemaRegistryConnection,
    get_connection,
)
from ematix_flow.foundation.errors import FlowError, UnknownName, WrongType

AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
CONFLUENT_WIRE, GLUE_WIRE = "confluent", "glue"

SchemaId = int | str
"""A number (Confluent, Apicurio), the UUID of a schema version (Glue), or another Apicurio number after its name."""
GLOBAL_ID, CONTENT_ID = "globalId ", "contentId "
"""Apicurio's other numbers: `globalId` counts schema versions, `contentId` contents, which versions may share."""


@dataclass(frozen=True)
class SchemaReference:
    """Another schema that a schema uses, and the name by which it refers to it."""

    name: str
    schema: RegisteredSchema


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema with which messages were written."""

    kind: str
    """AVRO, PROTOBUF or JSON."""
    text: str
    references: tuple[SchemaReference, ...] = ()
    order: int = 0
    """A number that grows with every registered schema, to find the newest of several."""


class UnknownSchema(UnknownName):
    """The error when the registry answers that it has no such schema."""


class SchemaRefused(FlowError, ValueError):
    """The error when the registry rejects a schema, because it breaks its subject's compatibility rule."""

    exit_code = 3


class SchemaRegistry(Protocol):
    """A schema registry; its methods raise Unreachable, which may be temporary, when it does not answer."""

    wire: str
    """The way in which messages refer to their schema: `confluent` or `glue`."""
    label: str
    """The registry in messages to users, without secrets."""

    def schema(self, schema_id: SchemaId) -> RegisteredSchema:
        """Return the schema with this id; raise UnknownSchema where there is none."""

    def latest(self, subject: str) -> tuple[SchemaId, RegisteredSchema] | None:
        """Return the newest schema of a subject and its id; None where there is none."""

    def register(self, subject: str, text: str, kind: str) -> SchemaId:
        """Register the schema under this subject, and return its id; raise SchemaRefused where it is not accepted."""


def registry_of(broker: Connection, *, find: Callable[[str], Connection] | None = None) -> SchemaRegistry | None:
    """Return the registry of a broker's connection, None where it has none; `find` looks connections up by name."""
    if getattr(broker, "schema_registry_url", None):
        return open_registry(broker.resolved().schema_registry_url)  # type: ignore[attr-defined]
    named = getattr(broker, "schema_registry", None)
    if named is None:
        return None
    return open_registry((find or get_connection)(named) if isinstance(named, str) else named)


def open_registry(named: Connection | str) -> SchemaRegistry:
    """Return the registry of a connection, or at a URL."""
    if isinstance(named, str):
        from ematix_flow.messages.registries.confluent import ConfluentRegistry

        return ConfluentRegistry(named)
    if isinstance(named, SchemaRegistryConnection):
        from ematix_flow.messages.registries.confluent import ConfluentRegistry

        connection = named.resolved()
        return ConfluentRegistry(
            connection.url,
            user=connection.basic_auth_user,
            password=connection.basic_auth_password,
            ca=connection.tls_ca_path,
            certificate=connection.tls_cert_path,
            key=connection.tls_key_path,
        )
    if isinstance(named, GlueSchemaRegistryConnection):
        from ematix_flow.messages.registries.glue import GlueRegistry

        return GlueRegistry.shared(named)
    raise WrongType(
        f"{type(named).__name__} is no schema registry",
        hint="name a connection of kind schema_registry or glue_schema_registry",
    )
