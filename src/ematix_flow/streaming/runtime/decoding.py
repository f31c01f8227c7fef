"""Decoders, which turn the messages of a stream into rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from ematix_flow.config.resolve import resolve
from ematix_flow.contract.stream import StreamSource
from ematix_flow.dataplane.spark_session import observed_counts
from ematix_flow.declare.connections.brokers import payload_format
from ematix_flow.declare.connections.lakes import files_format
from ematix_flow.declare.streams.spec import FAIL, StreamSpec
from ematix_flow.messages import json_rows
from ematix_flow.messages.decode import (
    ERROR,
    EVENT_TS,
    MOST_LESSONS,
    NOT_LEARNED,
    RAW,
    SOURCE,
    TOMBSTONE,
    DecodingState,
    ForgetfulMemory,
    decode,
    learn,
)
from ematix_flow.messages.decoding_state import known_columns
from ematix_flow.messages.registries.registry import registry_of
from ematix_flow.sql.spark_text import quote, text_literal
from ematix_flow.streaming.runtime.checkpoint_folder import CheckpointFolder
from ematix_flow.streaming.runtime.source_union import in_same_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

CSV = "csv"
_OF_EVERY_MESSAGE = frozenset((ERROR, EVENT_TS, RAW, SOURCE))


@dataclass
class Decoder:
    """A decoder of envelopes that learns the schema of their payloads; rows of a lake (no `how`) stay as they are."""

    how: DecodingState | None
    columns: Sequence[str] | None = field(default=None, init=False)
    """The columns of the source itself, where several sources share a frame."""
    skips_tombstones: bool = field(default=False, kw_only=True)
    """Whether a message without a value is not a decoding error."""
    _rows: DataFrame | None = field(default=None, init=False)
    _decoded: DataFrame | None = field(default=None, init=False)
    """The frame that `rows` returned; a caller that persists the rows persists this very frame."""
    _watch: Observation | None = field(default=None, init=False)
    is_watched: bool = field(default=False, init=False)
    """Whether messages that cannot be decoded yet stay among the rows, to be checked with `has_unknown_messages`."""

    def rows(self, frame: DataFrame, *, watched: bool) -> DataFrame:
        """Return the rows of one micro-batch.

        With `watched`, the caller checks `has_unknown_messages` after the rows were read; otherwise, and as long as no column is
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
        self._decoded = rows
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
        self._decoded = rows.observe(self._watch, f.count(f.lit(1)).alias("rows"), bad.alias("bad"))
        return self._decoded

    def _read(self, frame: DataFrame, decoding: DecodingState) -> DataFrame:
        from pyspark.sql import Observation

        self._watch = Observation()
        rows = decode(frame, decoding, watch=self._watch)
        if self.skips_tombstones:
            kept = [quote(name) for name in rows.columns if name != ERROR]
            rows = rows.selectExpr(*kept, f"nullif({ERROR}, {text_literal(TOMBSTONE)}) AS {ERROR}")
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

    def has_unknown_messages(self) -> bool:
        """Return whether watched rows had messages that could not be decoded yet; call it after the rows were read."""
        if not self.is_watched or self._rows is None:
            return False
        count = self._observed_count("unlearned")
        return bool(count) if count is not None else not self._rows.where(f"{ERROR} LIKE '{NOT_LEARNED}%'").isEmpty()

    def bad(self) -> int | None:
        """Return how many messages could not be decoded, None where not counted; call it after the rows were read."""
        return self._observed_count("bad")

    def leave(self) -> None:
        """Drop the counts of this micro-batch, whose rows are not read."""
        self.is_watched, self._watch, self._decoded = False, None, None

    def learn(self) -> bool:
        """Learn the schema that undecoded messages need; return False where it cannot be learned."""
        return self.how is not None and self._rows is not None and learn(self._rows, self.how)

    def seen(self) -> int | None:
        """Return how many rows or messages there were; call it after they were read."""
        if self._decoded is None:
            return None
        count = self._observed_count("rows")
        return count if count is not None else self._decoded.count()

    def _observed_count(self, name: str) -> int | None:
        """Return an observed count; None where nothing was observed."""
        count = observed_counts(self._watch).get(name) if self._watch is not None else None
        return None if count is None else int(count)


class LakeRowSource(Protocol):
    """A source that makes its rows itself, such as the contents of files from the streamed file names."""

    def rows(self, frame: DataFrame) -> DataFrame:
        """Return the rows of a micro-batch with `_source`; an unreadable one has `_error`, and its bytes in `_raw`."""


@runtime_checkable
class LineSource(LakeRowSource, Protocol):
    """A lake source that may hold lines, each of which is a message."""

    @property
    def are_messages(self) -> bool:
        """Return whether its lines are messages."""

    def messages(self, frame: DataFrame) -> DataFrame:
        """Return the lines of a micro-batch as envelopes."""

    def with_folder_columns(self, rows: DataFrame) -> DataFrame:
        """Return decoded lines with the columns that come from folder names."""

    def sample_lines(self) -> int | None:
        """Return how many lines of a new stream are sampled for their schema before decoding; None for no sample."""


@runtime_checkable
class ReplayableSource(LakeRowSource, Protocol):
    """A lake source that may keep unreadable rows as lines."""

    @property
    def keeps_lines(self) -> bool:
        """Return whether unreadable rows are kept as lines."""

    def rows_of_lines(self, messages: DataFrame) -> DataFrame:
        """Return the rows of such lines, each with its line in `_raw`."""


@dataclass
class LakeDecoder(Decoder):
    """A decoder of lake rows, and of lines as messages; adds what dead letters need where the stream keeps them."""

    source: LakeRowSource
    has_letters: bool

    def rows(self, frame: DataFrame, *, watched: bool) -> DataFrame:
        if self.how is not None and isinstance(self.source, LineSource) and self.source.are_messages:
            messages = frame if "value" in frame.columns else self._beside(self.source.messages(frame), frame)
            self._sample_first(messages, self.how, self.source.sample_lines())
            rows = super().rows(messages, watched=watched)
            self._decoded = self.source.with_folder_columns(self._without_moment(rows, self.how))
            return self._decoded
        rows = self._beside(self.source.rows(frame), frame)
        return self._counted(_with_raw(rows) if self.has_letters else rows)

    def _beside(self, rows: DataFrame, frame: DataFrame) -> DataFrame:
        """Return the rows in the frame's session where several sources share it: others lose observed counts."""
        return rows if self.columns is None else in_same_session(frame, rows)

    @property
    def gives_text(self) -> bool:
        return super().gives_text and isinstance(self.source, LineSource) and self.source.are_messages

    def _sample_first(self, messages: DataFrame, decoding: DecodingState, most: int | None) -> None:
        if most is not None and decoding.payload == "json" and not decoding.fields and known_columns(decoding) is None:
            json_rows.learn(messages.limit(most).selectExpr(f"value AS {RAW}"), decoding)

    def _without_moment(self, rows: DataFrame, decoding: DecodingState) -> DataFrame:
        """Drop the file's time, which `_source` has: as a column that no line has, it would reach the target."""
        known = decoding.fields or (
            decoding.learned.columns.fieldNames() if decoding.learned.columns is not None else ()
        )
        return rows if EVENT_TS in known else rows.drop(EVENT_TS)


def _with_raw(rows: DataFrame) -> DataFrame:
    """Return the rows with a replayable `_raw`: the row as JSON where it has no bytes of its own."""
    own = ", ".join(quote(name) for name in rows.columns if name not in _OF_EVERY_MESSAGE)
    raw = f"to_binary(to_json(struct({own})), 'utf-8')"
    kept = [quote(name) for name in rows.columns if name != RAW]
    return rows.selectExpr(*kept, f"{f'coalesce({RAW}, {raw})' if RAW in rows.columns else raw} AS {RAW}")


def decoder_of(spec: StreamSpec, source: StreamSource, folder: CheckpointFolder, number: int = 0) -> Decoder:
    """Return the decoder of one source, to be used as long as the stream is open."""
    read_as, learned = payload_format_of(spec, number), folder.learned(number)
    if spec.cdc is not None and (read_as == "json" or not source.envelopes):
        read_as = "raw_bytes"  # change rows are parsed from the text, by the columns of their target
    if not source.envelopes:
        payload = "json" if spec.cdc is None else read_as
        decoding = DecodingState(payload, spec.fields, None, learned) if isinstance(source, LineSource) else None
        return LakeDecoder(decoding, cast(LakeRowSource, source), spec.bad_rows.policy != FAIL)
    connection = resolve(spec.sources[number].connection).connection
    registry = registry_of(connection, find=lambda name: resolve(name).connection)
    # Changes have the columns of their table, and an earlier version stored other types for them.
    known = learned if spec.cdc is None else ForgetfulMemory()
    decoding = DecodingState(
        read_as, spec.fields, registry, known, of_connect=spec.cdc is not None and read_as == "avro"
    )
    return Decoder(decoding, skips_tombstones=spec.cdc is not None)


def payload_format_of(spec: StreamSpec, number: int = 0) -> str:
    """Return the payload format of the messages of a source."""
    connection = resolve(spec.sources[number].connection).connection
    return spec.payload or payload_format(connection) or "json"


def line_format_of(spec: StreamSpec, number: int = 0) -> str:
    """Return the format in which unreadable input is stored: a CSV row as its line, anything else as its message."""
    connection = resolve(spec.sources[number].connection).connection
    return CSV if files_format(connection) == CSV else payload_format_of(spec, number)
