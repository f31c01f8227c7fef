"""How the messages of a stream become rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from ematix_flow.config.resolve import resolve
from ematix_flow.contract.stream import StreamSource
from ematix_flow.declare.streams.spec import FAIL, StreamSpec
from ematix_flow.engine.streams.feeding import in_session_of
from ematix_flow.engine.streams.folder import StreamFolder
from ematix_flow.families.lake.session import quote, text
from ematix_flow.families.messages import json_rows
from ematix_flow.families.messages.decode import (
    ERROR,
    EVENT_TS,
    MOST_LESSONS,
    NOT_LEARNED,
    RAW,
    SOURCE,
    TOMBSTONE,
    Decoding,
    Forgetful,
    decode,
    learn,
)
from ematix_flow.families.messages.reading import columns_known
from ematix_flow.families.messages.registry import registry_of
from ematix_flow.families.observed import heard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

CSV = "csv"
_OF_EVERY_MESSAGE = frozenset((ERROR, EVENT_TS, RAW, SOURCE))


@dataclass
class Decoder:
    """Reads envelopes, and learns what their payloads hold; rows of a lake stay as they are."""

    how: Decoding | None
    columns: Sequence[str] | None = field(default=None, init=False)
    """Those of the source itself, where several share a frame."""
    skips_tombstones: bool = field(default=False, kw_only=True)
    """Whether a message without a value is none that cannot be decoded."""
    _rows: DataFrame | None = field(default=None, init=False)
    _given: DataFrame | None = field(default=None, init=False)
    """The rows that were handed out; whoever keeps them keeps this very frame."""
    _watch: Observation | None = field(default=None, init=False)
    is_watched: bool = field(default=False, init=False)
    """Whether messages that could not be read yet are among the rows, and are asked for afterwards."""

    def rows(self, frame: DataFrame, *, watched: bool) -> DataFrame:
        """The rows of one micro-batch.

        Where they are `watched`, whoever reads them asks `has_unread` afterwards; otherwise, and as long as no column is
        known, they are looked through now.
        """
        if self.how is None:
            return self._counted(frame)
        rows = self._read(frame, self.how)
        self.is_watched = watched and self.knows_columns
        for _ in range(0 if self.is_watched else MOST_LESSONS):
            if not learn(rows, self.how):
                break
            rows = self._read(frame, self.how)
        self._given = rows
        return rows

    @property
    def knows_columns(self) -> bool:
        """Whether rows have more than what every message has."""
        return self._rows is None or not _OF_EVERY_MESSAGE.issuperset(self._rows.columns)

    def _counted(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        self._watch = Observation()
        bad = f.count(f.col(ERROR)) if ERROR in rows.columns else f.lit(0)
        self._given = rows.observe(self._watch, f.count(f.lit(1)).alias("rows"), bad.alias("bad"))
        return self._given

    def _read(self, frame: DataFrame, how: Decoding) -> DataFrame:
        from pyspark.sql import Observation

        self._watch = Observation()
        rows = decode(frame, how, watch=self._watch)
        if self.skips_tombstones:
            kept = [quote(name) for name in rows.columns if name != ERROR]
            rows = rows.selectExpr(*kept, f"nullif({ERROR}, {text(TOMBSTONE)}) AS {ERROR}")
        self._rows = rows
        return self._rows

    @property
    def gives_text(self) -> bool:
        """Whether rows are messages as they came, and nothing of their JSON was read yet."""
        return self.how is not None and self.how.payload == "raw_bytes"

    @property
    def is_framed(self) -> bool:
        """Whether a serializer may have put something before the text of a message."""
        return self.how is not None and self.how.registry is not None

    def has_unread(self) -> bool:
        """Whether messages were among the watched rows that could not be read yet; asked after the rows were read."""
        if not self.is_watched or self._rows is None:
            return False
        heard = self._heard("unlearned")
        return bool(heard) if heard is not None else not self._rows.where(f"{ERROR} LIKE '{NOT_LEARNED}%'").isEmpty()

    def bad(self) -> int | None:
        """Return how many messages could not be decoded, asked after they were read; None where they were not counted."""
        return self._heard("bad")

    def leave(self) -> None:
        """Nobody reads the rows of this micro-batch, nor asks about them."""
        self.is_watched, self._watch, self._given = False, None, None

    def learn(self) -> bool:
        """Learn what they need; False where nobody can teach it."""
        return self.how is not None and self._rows is not None and learn(self._rows, self.how)

    def seen(self) -> int | None:
        """How many rows or messages there were; asked after they were read."""
        if self._given is None:
            return None
        heard = self._heard("rows")
        return heard if heard is not None else self._given.count()

    def _heard(self, name: str) -> int | None:
        """What was counted; None where nobody did."""
        found = heard(self._watch).get(name) if self._watch is not None else None
        return None if found is None else int(found)


class LakeSource(Protocol):
    """A source of rows, which makes them of what it streams itself: of the names of files, what they hold."""

    def rows(self, frame: DataFrame) -> DataFrame:
        """The rows of a micro-batch, with `_source`; one that cannot be read says why in `_error`, and is in `_raw`."""


@runtime_checkable
class LineSource(LakeSource, Protocol):
    """One that may hold lines, each of which is a message."""

    @property
    def are_messages(self) -> bool:
        """Whether it does."""

    def messages(self, frame: DataFrame) -> DataFrame:
        """The lines of a micro-batch as envelopes."""

    def finished(self, rows: DataFrame) -> DataFrame:
        """Decoded lines, with what is not in them."""

    def first_look(self) -> int | None:
        """How many lines of a new stream are looked at before one is read."""


@runtime_checkable
class ReturningSource(LakeSource, Protocol):
    """One whose rows, where they cannot be read, are kept as lines."""

    @property
    def lines_return(self) -> bool:
        """Whether they are."""

    def returned(self, messages: DataFrame) -> DataFrame:
        """The rows of such lines, each with its line in `_raw`."""


@dataclass
class LakeDecoder(Decoder):
    """Takes rows as a lake has them, and lines as messages; what dead letters need is added where there are any."""

    source: LakeSource
    has_letters: bool

    def rows(self, frame: DataFrame, *, watched: bool) -> DataFrame:
        if self.how is not None and isinstance(self.source, LineSource) and self.source.are_messages:
            given = frame if "value" in frame.columns else self._beside(self.source.messages(frame), frame)
            self._look_first(given, self.how, self.source.first_look())
            rows = super().rows(given, watched=watched)
            self._given = self.source.finished(self._without_moment(rows, self.how))
            return self._given
        rows = self._beside(self.source.rows(frame), frame)
        return self._counted(_with_raw(rows) if self.has_letters else rows)

    def _beside(self, rows: DataFrame, frame: DataFrame) -> DataFrame:
        """Where several sources share a micro-batch, the rows in its session: what is counted in another is not heard."""
        return rows if self.columns is None else in_session_of(frame, rows)

    @property
    def gives_text(self) -> bool:
        return super().gives_text and isinstance(self.source, LineSource) and self.source.are_messages

    def _look_first(self, messages: DataFrame, how: Decoding, most: int | None) -> None:
        if most is not None and how.payload == "json" and not how.fields and columns_known(how) is None:
            json_rows.learn(messages.limit(most).selectExpr(f"value AS {RAW}"), how)

    def _without_moment(self, rows: DataFrame, how: Decoding) -> DataFrame:
        """The time of a file is in `_source`: a column that its lines do not have would end up in the target."""
        known = how.fields or (how.learned.columns.fieldNames() if how.learned.columns is not None else ())
        return rows if EVENT_TS in known else rows.drop(EVENT_TS)


def _with_raw(rows: DataFrame) -> DataFrame:
    """The row as JSON, which can be replayed, where it has no bytes of its own."""
    own = ", ".join(quote(name) for name in rows.columns if name not in _OF_EVERY_MESSAGE)
    made = f"to_binary(to_json(struct({own})), 'utf-8')"
    kept = [quote(name) for name in rows.columns if name != RAW]
    return rows.selectExpr(*kept, f"{f'coalesce({RAW}, {made})' if RAW in rows.columns else made} AS {RAW}")


def decoder_of(spec: StreamSpec, source: StreamSource, folder: StreamFolder, number: int = 0) -> Decoder:
    """The decoder of one source of a stream, which lives as long as it."""
    read_as, learned = payload_of(spec, number), folder.learned(number)
    if spec.cdc is not None and (read_as == "json" or not source.envelopes):
        read_as = "raw_bytes"  # its rows are read from the text, by the columns that take them
    if not source.envelopes:
        payload = "json" if spec.cdc is None else read_as
        how = Decoding(payload, spec.fields, None, learned) if isinstance(source, LineSource) else None
        return LakeDecoder(how, cast(LakeSource, source), spec.bad_rows.policy != FAIL)
    connection = resolve(spec.sources[number].connection).connection
    registry = registry_of(connection, find=lambda name: resolve(name).connection)
    # Changes have the columns of their table, and an earlier version kept other types for them.
    known = learned if spec.cdc is None else Forgetful()
    how = Decoding(read_as, spec.fields, registry, known, of_connect=spec.cdc is not None and read_as == "avro")
    return Decoder(how, skips_tombstones=spec.cdc is not None)


def payload_of(spec: StreamSpec, number: int = 0) -> str:
    """How the messages of a source are written."""
    there = resolve(spec.sources[number].connection).connection
    return spec.payload or getattr(there, "payload_format", None) or "json"


def line_of(spec: StreamSpec, number: int = 0) -> str:
    """How that is written which could not be read: a row of CSV is kept as its line, where others are messages."""
    there = resolve(spec.sources[number].connection).connection
    return CSV if getattr(there, "format", None) == CSV else payload_of(spec, number)
