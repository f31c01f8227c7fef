"""Decoders, which turn the messages of a stream into rows."""

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
    """A decoder of envelopes that learns the schema of their payloads; rows of a lake (no `how`) stay as they are."""

    how: Decoding | None
    columns: Sequence[str] | None = field(default=None, init=False)
    """The columns of the source itself, where several sources share a frame."""
    skips_tombstones: bool = field(default=False, kw_only=True)
    """Whether a message without a value is not a decoding error."""
    _rows: DataFrame | None = field(default=None, init=False)
    _given: DataFrame | None = field(default=None, init=False)
    """The frame that `rows` returned; a caller that persists the rows persists this very frame."""
    _watch: Observation | None = field(default=None, init=False)
    is_watched: bool = field(default=False, init=False)
    """Whether messages that cannot be decoded yet stay among the rows, to be checked with `has_unread`."""

    def rows(self, frame: DataFrame, *, watched: bool) -> DataFrame:
        """Return the rows of one micro-batch.

        With `watched`, the caller checks `has_unread` after the rows were read; otherwise, and as long as no column is
        known, the messages are read now to learn their schema.
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
        """Return whether rows have more columns than those of every message."""
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
        """Return whether rows are messages as they came, with their JSON not parsed yet."""
        return self.how is not None and self.how.payload == "raw_bytes"

    @property
    def is_framed(self) -> bool:
        """Return whether a serializer may have put a header before the text of a message."""
        return self.how is not None and self.how.registry is not None

    def has_unread(self) -> bool:
        """Return whether watched rows had messages that could not be decoded yet; call it after the rows were read."""
        if not self.is_watched or self._rows is None:
            return False
        heard = self._heard("unlearned")
        return bool(heard) if heard is not None else not self._rows.where(f"{ERROR} LIKE '{NOT_LEARNED}%'").isEmpty()

    def bad(self) -> int | None:
        """Return how many messages could not be decoded, None where not counted; call it after the rows were read."""
        return self._heard("bad")

    def leave(self) -> None:
        """Drop the counts of this micro-batch, whose rows are not read."""
        self.is_watched, self._watch, self._given = False, None, None

    def learn(self) -> bool:
        """Learn the schema that undecoded messages need; return False where it cannot be learned."""
        return self.how is not None and self._rows is not None and learn(self._rows, self.how)

    def seen(self) -> int | None:
        """Return how many rows or messages there were; call it after they were read."""
        if self._given is None:
            return None
        heard = self._heard("rows")
        return heard if heard is not None else self._given.count()

    def _heard(self, name: str) -> int | None:
        """Return an observed count; None where nothing was observed."""
        found = heard(self._watch).get(name) if self._watch is not None else None
        return None if found is None else int(found)


class LakeSource(Protocol):
    """A source that makes its rows itself, such as the contents of files from the streamed file names."""

    def rows(self, frame: DataFrame) -> DataFrame:
        """Return the rows of a micro-batch with `_source`; an unreadable one has `_error`, and its bytes in `_raw`."""


@runtime_checkable
class LineSource(LakeSource, Protocol):
    """A lake source that may hold lines, each of which is a message."""

    @property
    def are_messages(self) -> bool:
        """Return whether its lines are messages."""

    def messages(self, frame: DataFrame) -> DataFrame:
        """Return the lines of a micro-batch as envelopes."""

    def finished(self, rows: DataFrame) -> DataFrame:
        """Return decoded lines with the columns that come from folder names."""

    def first_look(self) -> int | None:
        """Return how many lines of a new stream are sampled for their schema before decoding; None for no sample."""


@runtime_checkable
class ReturningSource(LakeSource, Protocol):
    """A lake source that may keep unreadable rows as lines."""

    @property
    def lines_return(self) -> bool:
        """Return whether unreadable rows are kept as lines."""

    def returned(self, messages: DataFrame) -> DataFrame:
        """Return the rows of such lines, each with its line in `_raw`."""


@dataclass
class LakeDecoder(Decoder):
    """A decoder of lake rows, and of lines as messages; adds what dead letters need where the stream keeps them."""

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
        """Return the rows in the frame's session where several sources share it: others lose observed counts."""
        return rows if self.columns is None else in_session_of(frame, rows)

    @property
    def gives_text(self) -> bool:
        return super().gives_text and isinstance(self.source, LineSource) and self.source.are_messages

    def _look_first(self, messages: DataFrame, how: Decoding, most: int | None) -> None:
        if most is not None and how.payload == "json" and not how.fields and columns_known(how) is None:
            json_rows.learn(messages.limit(most).selectExpr(f"value AS {RAW}"), how)

    def _without_moment(self, rows: DataFrame, how: Decoding) -> DataFrame:
        """Drop the file's time, which `_source` has: as a column that no line has, it would reach the target."""
        known = how.fields or (how.learned.columns.fieldNames() if how.learned.columns is not None else ())
        return rows if EVENT_TS in known else rows.drop(EVENT_TS)


def _with_raw(rows: DataFrame) -> DataFrame:
    """Return the rows with a replayable `_raw`: the row as JSON where it has no bytes of its own."""
    own = ", ".join(quote(name) for name in rows.columns if name not in _OF_EVERY_MESSAGE)
    made = f"to_binary(to_json(struct({own})), 'utf-8')"
    kept = [quote(name) for name in rows.columns if name != RAW]
    return rows.selectExpr(*kept, f"{f'coalesce({RAW}, {made})' if RAW in rows.columns else made} AS {RAW}")


def decoder_of(spec: StreamSpec, source: StreamSource, folder: StreamFolder, number: int = 0) -> Decoder:
    """Return the decoder of one source, to be used as long as the stream is open."""
    read_as, learned = payload_of(spec, number), folder.learned(number)
    if spec.cdc is not None and (read_as == "json" or not source.envelopes):
        read_as = "raw_bytes"  # change rows are parsed from the text, by the columns of their target
    if not source.envelopes:
        payload = "json" if spec.cdc is None else read_as
        how = Decoding(payload, spec.fields, None, learned) if isinstance(source, LineSource) else None
        return LakeDecoder(how, cast(LakeSource, source), spec.bad_rows.policy != FAIL)
    connection = resolve(spec.sources[number].connection).connection
    registry = registry_of(connection, find=lambda name: resolve(name).connection)
    # Changes have the columns of their table, and an earlier version stored other types for them.
    known = learned if spec.cdc is None else Forgetful()
    how = Decoding(read_as, spec.fields, registry, known, of_connect=spec.cdc is not None and read_as == "avro")
    return Decoder(how, skips_tombstones=spec.cdc is not None)


def payload_of(spec: StreamSpec, number: int = 0) -> str:
    """Return the payload format of the messages of a source."""
    there = resolve(spec.sources[number].connection).connection
    return spec.payload or getattr(there, "payload_format", None) or "json"


def line_of(spec: StreamSpec, number: int = 0) -> str:
    """Return the format in which unreadable input is stored: a CSV row as its line, anything else as its message."""
    there = resolve(spec.sources[number].connection).connection
    return CSV if getattr(there, "format", None) == CSV else payload_of(spec, number)
