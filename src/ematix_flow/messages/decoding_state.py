"""The decoding state of a stream, and the decoded messages of any kind of payload."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.foundation.lazy_imports import t
from ematix_flow.messages.registries.registry import SchemaRegistry

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

NOT_LEARNED = "not learned yet: "
"""The beginning of `_error` where `learn` may find the missing column or schema; an ordinary sentence follows."""
TOMBSTONE = "the message has no value (a tombstone)"
EMPTY = "the message is empty"
FIRST_LOOK = 10_000
"""The number of messages inspected before any column is known; columns that they lack are found row by row later."""
MISSING_SECONDS = 60.0
"""The time before the registry is queried again for a missing schema."""
MOST_MISSING = 20
"""The missing schemas of a stream at which lookups stop: so many are bytes of payloads that begin with no id."""
KINDS = "_flow_kinds"
"""The column with the types of a row's columns in Kafka Connect's schema (`connect.name`), where requested."""


class SchemaMemory(Protocol):
    """A store beside the checkpoint for the columns learned from a stream's messages, as a Spark type in JSON."""

    def load(self) -> str | None:
        """Return the text saved last; None for a new stream."""

    def save(self, text: str) -> None:
        """Save this text in place of the former one."""


class ForgetfulMemory:
    """A schema memory that saves nothing."""

    def load(self) -> str | None:
        return None

    def save(self, text: str) -> None:
        return None


@dataclass
class LearnedSchemas:
    """The schemas that this process has learned from a stream's messages."""

    columns: StructType | None = None
    writers: dict[bytes, Any] = field(default_factory=dict)
    missing: dict[bytes, tuple[str, float]] = field(default_factory=dict)
    """Schemas that the registry lacks or that cannot be used: the reason, and the monotonic time of the lookup."""
    is_loaded: bool = False
    expressions: dict[Any, Any] = field(default_factory=dict)
    """Expressions of the last micro-batch by cache key: building them takes longer than a small batch."""


@dataclass(frozen=True)
class DecodingState:
    """The decoding options of one stream, and the schemas learned so far; it exists as long as the stream."""

    payload: str
    fields: Mapping[str, str] = field(default_factory=dict)
    """The exact columns and their Spark types. Without a registry, avro and protobuf take the writer's schema here:
    `{"schema": text}`, and for protobuf `"message"` where it is not the first one.
    """
    registry: SchemaRegistry | None = None
    known: SchemaMemory = field(default_factory=ForgetfulMemory)
    of_connect: bool = False
    """Whether values take the form of Connect's JSON, with the types of its schema in KINDS: Avro only."""
    learned: LearnedSchemas = field(default_factory=LearnedSchemas, init=False, repr=False, compare=False)


@dataclass(frozen=True)
class DecodedMessages:
    """The messages of a micro-batch, with the expressions that decode their payloads."""

    frame: DataFrame
    columns: tuple[tuple[str, Column], ...]
    """The payload's columns, by their names in the payload."""
    types: StructType
    why: Column
    """The reason why a row could not be read; NULL where it could."""
    key: Any = None
    """The cache key of the expressions; None where the next micro-batch cannot reuse them."""


def known_columns(decoding: DecodingState) -> StructType | None:
    """Return the learned columns, loaded from the schema memory at the first call; None without any."""
    state = decoding.learned
    if not state.is_loaded:
        kept = decoding.known.load()
        state.columns = t.StructType.fromJson(json.loads(kept)) if kept else None
        state.is_loaded = True
    return state.columns


def remember_columns(decoding: DecodingState, columns: StructType) -> bool:
    """Save the columns; return False when they have not changed."""
    if columns == known_columns(decoding):
        return False
    decoding.known.save(columns.json())
    decoding.learned.columns = columns
    return True


def forget_missing_schemas(decoding: DecodingState) -> None:
    """Drop missing schemas after MISSING_SECONDS, because they may have been registered since."""
    now = time.monotonic()
    missing = decoding.learned.missing
    for prefix in [prefix for prefix, (_, since) in missing.items() if now - since > MISSING_SECONDS]:
        del missing[prefix]


def declared_columns(fields: Mapping[str, str]) -> StructType:
    """Return the columns that the user declared; raise DeclarationError for an invalid type."""
    from pyspark.errors import PySparkException

    struct_fields = []
    for name, kind in fields.items():
        try:
            struct_fields.append(t.StructField(name, t.DataType.fromDDL(kind)))
        except PySparkException:
            raise DeclarationError(
                f"the field {name!r} of the messages has the type {kind!r}, which is none",
                hint="use Spark's names: BIGINT, DOUBLE, STRING, DECIMAL(10,2), TIMESTAMP, STRUCT<…>, ARRAY<…>",
            ) from None
    return t.StructType(struct_fields)
