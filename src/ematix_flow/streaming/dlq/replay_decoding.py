"""Decoders of dead letters: as messages of their source, as rows of a lake, or as lines of a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ematix_flow.contract.stream import StreamRead, StreamSource
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.messages.decode import ERROR, RAW, SOURCE, DecodingState, decode
from ematix_flow.streaming.dlq.dead_letter import DeadLetter
from ematix_flow.streaming.runtime.checkpoint_folder import CheckpointFolder
from ematix_flow.streaming.runtime.decoding import (
    CSV,
    DecodedRows,
    Decoder,
    LakeRowSource,
    LineSource,
    ReplayableSource,
    counted,
    decoder_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_OWN = ("_event_ts", "_flow_wrong")
"""Columns that the decoder, and dead letters of an earlier version, add to rows of a lake."""


@dataclass
class ReplayedRowDecoder(Decoder):
    """A decoder of lake rows from the JSON in their dead letters."""

    def decode(self, frame: DataFrame, *, watched: bool) -> DecodedRows:
        if self.how is None:
            raise AssertionError("rows of a lake are read as JSON here")
        return DecodedRows(decode(frame, self.how).drop(*_OWN))


@dataclass
class ReplayedLineDecoder(Decoder):
    """A decoder of CSV lines as they are in their files."""

    source: ReplayableSource

    def decode(self, frame: DataFrame, *, watched: bool) -> DecodedRows:
        return counted(self.source.rows_of_lines(frame))


def letter_decoder(spark: SparkSession, spec: StreamSpec, folder: CheckpointFolder, source: StreamSource,
                   read: StreamRead, letter: DeadLetter | None) -> Decoder:  # fmt: skip
    """Return the decoder for letters of a source; None is for letters of another one, of which it gets no rows."""
    if source.envelopes:
        return decoder_of(spec, source, folder, read.number)
    frame = source.frame(spark, read)
    if isinstance(source, LineSource) and source.are_messages:
        return decoder_of(spec, source, folder, read.number)
    if letter is not None and isinstance(source, ReplayableSource) and source.keeps_lines and holds_line(letter):
        return ReplayedLineDecoder(None, source)
    return ReplayedRowDecoder(DecodingState("json", _columns(frame, cast(LakeRowSource, source))))


def holds_line(letter: DeadLetter) -> bool:
    """Return whether a letter of a CSV folder is a line; an earlier version did not record the format."""
    return letter.payload_format == CSV or letter.stage == "decode"


def _columns(frame: DataFrame, source: LakeRowSource) -> Mapping[str, str]:
    """Return the columns of a lake's rows with their types."""
    rows = source.rows(frame.sparkSession.createDataFrame([], frame.schema))
    return {name: kind for name, kind in rows.dtypes if name not in (ERROR, RAW, SOURCE)}
