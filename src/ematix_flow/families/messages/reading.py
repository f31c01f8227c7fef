"""What every kind of payload is read into, before the message's own columns are put beside it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ematix_flow.families.messages.registry import Registry
from ematix_flow.foundation.errors import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

NOT_LEARNED = "not learned yet: "
"""How `_error` begins where `learn` may teach what the row needs; everything after it is an ordinary sentence."""
TOMBSTONE = "the message has no value (a tombstone)"
EMPTY = "the message is empty"
FIRST_LOOK = 10_000
"""Messages that are looked at before anything is known; what they do not show is found row by row later."""
MISSING_SECONDS = 60.0
"""How long a schema that the registry does not know is not asked for again."""
MOST_MISSING = 20
"""Unknown schemas of a stream that are asked for meanwhile: more of them are bytes of payloads that begin with no id."""
KINDS = "_flow_kinds"
"""What a schema of Kafka Connect's says about the columns of a row (`connect.name`), where it is asked for."""


class SchemaMemory(Protocol):
    """Keeps what was learned about a stream's messages beside its checkpoint, as a Spark type in JSON."""

    def load(self) -> str | None:
        """What was kept last; None for a new stream."""

    def save(self, text: str) -> None:
        """Keep this from now on."""


class Forgetful:
    """A memory that ends with this process."""

    def load(self) -> str | None:
        return None

    def save(self, text: str) -> None:
        return None


@dataclass
class Learned:
    """What this process knows about a stream's messages."""

    columns: StructType | None = None
    writers: dict[bytes, Any] = field(default_factory=dict)
    missing: dict[bytes, tuple[str, float]] = field(default_factory=dict)
    """Schemas that the registry does not know, or that cannot be used: why, and since when."""
    is_loaded: bool = False
    made: dict[Any, Any] = field(default_factory=dict)
    """Expressions of the last micro-batch, by what they depend on: making them anew takes longer than a small batch."""


@dataclass(frozen=True)
class Decoding:
    """How the messages of one stream are read; one of these lives as long as the stream."""

    payload: str
    fields: Mapping[str, str] = field(default_factory=dict)
    """Columns and their Spark types, exactly these. Without a registry, avro and protobuf take the writer's schema here:
    `{"schema": text}`, and for protobuf `"message"` where it is not the first one."""
    registry: Registry | None = None
    known: SchemaMemory = field(default_factory=Forgetful)
    of_connect: bool = False
    """Whether values are read as Connect's JSON has them, with what its schema says of them in KINDS: Avro only."""
    learned: Learned = field(default_factory=Learned, init=False, repr=False, compare=False)


@dataclass(frozen=True)
class Reading:
    """Messages with what their payloads say."""

    frame: DataFrame
    columns: tuple[tuple[str, Column], ...]
    """The payload's columns, by the names that they have in the payload."""
    types: StructType
    why: Column
    """Why a row could not be read; NULL where it could."""
    key: Any = None
    """What all of this depends on; None where it is not the same for the next micro-batch."""


def columns_known(how: Decoding) -> StructType | None:
    """The columns that were learned, now or before this process."""
    from pyspark.sql import types as t

    state = how.learned
    if not state.is_loaded:
        kept = how.known.load()
        state.columns = t.StructType.fromJson(json.loads(kept)) if kept else None
        state.is_loaded = True
    return state.columns


def remember(how: Decoding, columns: StructType) -> bool:
    """Keep wider columns; False where nothing is new about them."""
    if columns == columns_known(how):
        return False
    how.known.save(columns.json())
    how.learned.columns = columns
    return True


def forget_old_absences(how: Decoding) -> None:
    """A schema that was missing a while ago may have been registered since."""
    now = time.monotonic()
    missing = how.learned.missing
    for prefix in [prefix for prefix, (_, since) in missing.items() if now - since > MISSING_SECONDS]:
        del missing[prefix]


def declared(fields: Mapping[str, str]) -> StructType:
    """The columns that the user named."""
    from pyspark.errors import PySparkException
    from pyspark.sql import types as t

    made = []
    for name, kind in fields.items():
        try:
            made.append(t.StructField(name, t.DataType.fromDDL(kind)))
        except PySparkException:
            raise DeclarationError(
                f"the field {name!r} of the messages has the type {kind!r}, which is none",
                hint="use Spark's names: BIGINT, DOUBLE, STRING, DECIMAL(10,2), TIMESTAMP, STRUCT<…>, ARRAY<…>",
            ) from None
    return t.StructType(made)
