"""Decoders, which turn the messages of a stream into rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
_IS_NOT_LEARNED = f"{ERROR} LIKE '{NOT_LEARNED}%'"


@dataclass(frozen=True)
class DecodedRows:
    """The rows of one micro-batch from one source, and the counts that are observed while they are read."""

    rows: DataFrame
    how: DecodingState | None = None
    messages: DataFrame | None = None
    """The rows as they were decoded from messages, with their errors; None for rows that were no messages."""
    watch: Observation | None = None
    is_watched: bool = False
    """Whether messages that cannot be decoded yet stay among the rows, to be checked with `has_unknown_messages`."""

    @property
    def knows_columns(self) -> bool:
        """Return whether rows have more columns than those of every message."""
        return self.messages is None or not _OF_EVERY_MESSAGE.issuperset(self.messages.columns)

    def has_unknown_messages(self, *, were_read: bool) -> bool:
        """Return whether watched rows have messages that cannot be decoded yet, which was observed if they were read."""
        if not self.is_watched or self.messages is None:
            return False
        count = self._observed_count("unlearned") if were_read else None
        return bool(count) if count is not None else not self.messages.where(_IS_NOT_LEARNED).isEmpty()

    def learn(self) -> bool:
        """Learn the schema that undecoded messages need; return False where it cannot be learned."""
        return self.how is not None and self.messages is not None and learn(self.messages, self.how)

    def bad(self) -> int | None:
        """Return how many messages could not be decoded, None where not counted; call it after the rows were read."""
        return self._observed_count("bad")

    def seen(self) -> int | None:
        """Return how many rows or messages there were, None where not counted; call it after they were read."""
        if self.watch is None:
            return None
        count = self._observed_count("rows")
        return count if count is not None else self.rows.count()

    def _observed_count(self, name: str) -> int | None:
        """Return an observed count; None where nothing was observed."""
        count = observed_counts(self.watch).get(name) if self.watch is not None else None
        return None if count is None else int(count)


@dataclass
class Decoder:
    """A decoder of envelopes that learns the schema of their payloads; rows of a lake (no `how`) stay as they are."""

    how: DecodingState | None
    columns: Sequence[str] | None = field(default=None, init=False)
    """The columns of the source itself, where several sources share a frame."""
    skips_tombstones: bool = field(default=False, kw_only=True)
    """Whether a message without a value is not a decoding error."""

    def decode(self, frame: DataFrame, *, watched: bool) -> DecodedRows:
        """Return the rows of one micro-batch.

        With `watched`, the caller checks `has_unknown_messages` after the rows were read; otherwise, and as long as no
        column is known, the messages are read now to learn their schema.
        """
        if self.how is None:
            return counted(frame)
        decoded = self._read(frame, self.how)
        if watched and decoded.knows_columns:
            return replace(decoded, is_watched=True)
        for _ in range(MOST_LESSONS):
            if not decoded.learn():
                break
            decoded = self._read(frame, self.how)
        return decoded

    def _read(self, frame: DataFrame, decoding: DecodingState) -> DecodedRows:
        from pyspark.sql import Observation

        watch = Observation()
        rows = decode(frame, decoding, watch=watch)
        if self.skips_tombstones:
            kept = [quote(name) for name in rows.columns if name != ERROR]
            rows = rows.selectExpr(*kept, f"nullif({ERROR}, {text_literal(TOMBSTONE)}) AS {ERROR}")
        return DecodedRows(rows, decoding, rows, watch)

    @property
    def gives_text(self) -> bool:
        """Return whether rows are messages as they came, with their JSON not parsed yet."""
        return self.how is not None and self.how.payload == "raw_bytes"

    @property
    def is_framed(self) -> bool:
        """Return whether a serializer may have put a header before the text of a message."""
        return self.how is not None and self.how.registry is not None


def counted(rows: DataFrame) -> DecodedRows:
    """Return rows that were no messages, counted while they are read."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    watch = Observation()
    bad = f.count(f.col(ERROR)) if ERROR in rows.columns else f.lit(0)
    return DecodedRows(rows.observe(watch, f.count(f.lit(1)).alias("rows"), bad.alias("bad")), watch=watch)


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

    def decode(self, frame: DataFrame, *, watched: bool) -> DecodedRows:
        if self.how is not None and isinstance(self.source, LineSource) and self.source.are_messages:
            messages = frame if "value" in frame.columns else self._beside(self.source.messages(frame), frame)
            self._sample_first(messages, self.how, self.source.sample_lines())
            decoded = super().decode(messages, watched=watched)
            rows = self.source.with_folder_columns(self._without_moment(decoded.rows, self.how))
            return replace(decoded, rows=rows)
        rows = self._beside(self.source.rows(frame), frame)
        return counted(_with_raw(rows) if self.has_letters else rows)

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
