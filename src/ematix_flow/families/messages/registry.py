"""Schema registries: what every one of them answers, and opening the one that a connection names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ematix_flow.foundation.errors import FlowError, UnknownName, WrongType

if TYPE_CHECKING:
    from ematix_flow.declare.connections import Connection

AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
CONFLUENT_WIRE, GLUE_WIRE = "confluent", "glue"

SchemaId = int | str
"""A number at Confluent's and Apicurio's, the UUID of a schema version at Glue's; or one of Apicurio's other numbers, behind
its name."""
GLOBAL_ID, CONTENT_ID = "globalId ", "contentId "
"""What Apicurio's headers number: every version of a schema, or every content, however many versions have it."""


@dataclass(frozen=True)
class Reference:
    """Another schema that a schema uses, by the name under which it does."""

    name: str
    schema: Schema


@dataclass(frozen=True)
class Schema:
    """How a message was written."""

    kind: str
    """AVRO, PROTOBUF or JSON."""
    text: str
    references: tuple[Reference, ...] = ()
    order: int = 0
    """Grows with every schema that is registered: tells the newest of several."""


class UnknownSchema(UnknownName):
    """The registry answered, and knows no such schema."""


class SchemaRefused(FlowError, ValueError):
    """The registry does not take a schema: it breaks the promise that its subject makes to readers."""

    exit_code = 3


class Registry(Protocol):
    """Keeps the schemas of messages. Unreachable (which may pass) where it does not answer."""

    wire: str
    """How messages name their schema: `confluent` or `glue`."""
    label: str
    """The registry as people may see it."""

    def schema(self, schema_id: SchemaId) -> Schema:
        """The schema of this id; UnknownSchema where there is none."""

    def latest(self, subject: str) -> tuple[SchemaId, Schema] | None:
        """The newest schema of a subject; None where there is none."""

    def register(self, subject: str, text: str, kind: str) -> SchemaId:
        """The id of this schema under this subject, which has it from now on; SchemaRefused where it may not."""


def registry_of(broker: Connection, *, find: Callable[[str], Connection] | None = None) -> Registry | None:
    """The registry that a broker's connection names, None where it names none; `find` knows connections by name."""
    from ematix_flow.declare.connections import get_connection

    if getattr(broker, "schema_registry_url", None):
        return open_registry(broker.resolved().schema_registry_url)  # type: ignore[attr-defined]
    named = getattr(broker, "schema_registry", None)
    if named is None:
        return None
    return open_registry((find or get_connection)(named) if isinstance(named, str) else named)


def open_registry(named: Connection | str) -> Registry:
    """The registry of a connection whose references are filled in, or at a URL."""
    from ematix_flow.declare.connections import GlueSchemaRegistryConnection, SchemaRegistryConnection

    if isinstance(named, str):
        from ematix_flow.families.messages.confluent import ConfluentRegistry

        return ConfluentRegistry(named)
    if isinstance(named, SchemaRegistryConnection):
        from ematix_flow.families.messages.confluent import ConfluentRegistry

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
        from ematix_flow.families.messages.glue import GlueRegistry

        return GlueRegistry.shared(named)
    raise WrongType(
        f"{type(named).__name__} is no schema registry",
        hint="name a connection of kind schema_registry or glue_schema_registry",
    )
