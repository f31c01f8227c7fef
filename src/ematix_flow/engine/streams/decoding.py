"""How the messages of a stream become rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ematix_flow.config.resolve import resolve
from ematix_flow.contract.stream import StreamSource
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.engine.streams.folder import StreamFolder
from ematix_flow.families.messages.decode import ERROR, EVENT_TS, MOST_LESSONS, RAW, SOURCE, Decoding, decode, learn
from ematix_flow.families.messages.registry import registry_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

_OF_EVERY_MESSAGE = frozenset((ERROR, EVENT_TS, RAW, SOURCE))


@dataclass
class Decoder:
    """Reads envelopes, and learns what their payloads hold; rows of a lake stay as they are."""

    how: Decoding | None
    reads: Callable[[DataFrame], DataFrame] | None = None
    """How a source makes rows of what it streams itself: of the names of files, what they hold."""
    _rows: DataFrame | None = field(default=None, init=False)
    _watch: Observation | None = field(default=None, init=False)
    is_watched: bool = field(default=False, init=False)
    """Whether messages that could not be read yet are among the rows, and are asked for afterwards."""

    def rows(self, frame: DataFrame, *, watched: bool) -> DataFrame:
        """The rows of one micro-batch.

        Where they are `watched`, whoever reads them asks `has_unread` afterwards; otherwise, and as long as no column is
        known, they are looked through now.
        """
        if self.how is None:
            return self._counted(self.reads(frame) if self.reads is not None else frame)
        rows = self._read(frame, self.how)
        self.is_watched = watched and self.knows_columns
        for _ in range(0 if self.is_watched else MOST_LESSONS):
            if not learn(rows, self.how):
                break
            rows = self._read(frame, self.how)
        return rows

    @property
    def knows_columns(self) -> bool:
        """Whether rows have more than what every message has."""
        return self._rows is None or not _OF_EVERY_MESSAGE.issuperset(self._rows.columns)

    def _counted(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        self._watch = Observation()
        return rows.observe(self._watch, f.count(f.lit(1)).alias("rows"))

    def _read(self, frame: DataFrame, how: Decoding) -> DataFrame:
        from pyspark.sql import Observation

        self._watch = Observation()
        self._rows = decode(frame, how, watch=self._watch)
        return self._rows

    def has_unread(self) -> bool:
        """Whether messages were among the watched rows that could not be read yet; asked after the rows were read."""
        return self.is_watched and self._watch is not None and bool(self._watch.get["unlearned"])

    def learn(self) -> bool:
        """Learn what they need; False where nobody can teach it."""
        return self.how is not None and self._rows is not None and learn(self._rows, self.how)

    def seen(self) -> int | None:
        """How many rows or messages there were; asked after they were read."""
        return int(self._watch.get["rows"]) if self._watch is not None else None


def decoder_of(spec: StreamSpec, source: StreamSource, folder: StreamFolder) -> Decoder:
    """The decoder of a stream, which lives as long as it."""
    if not source.envelopes:
        return Decoder(None, getattr(source, "rows", None))
    connection = resolve(spec.sources[0].connection).connection
    registry = registry_of(connection, find=lambda name: resolve(name).connection)
    return Decoder(Decoding(payload_of(spec), spec.fields, registry, folder.learned()))


def payload_of(spec: StreamSpec) -> str:
    """How the messages of a stream are written."""
    there = resolve(spec.sources[0].connection).connection
    return spec.payload or getattr(there, "payload_format", None) or "json"
