"""The interface of stateful operators: functions from the rows of a micro-batch and the state to dataframes.

An operator has no state of its own. It adds `partials` of a micro-batch; all stored partials are the state, and all
emitted rows are a function of the state and of the watermark. Moments are microseconds since 1970, as `unix_micros`
returns them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCH = "_flow_batch"
"""A column of the state: the micro-batch that added the row."""
AT = "_flow_at"
"""A column of incoming rows: their event time as a moment, never NULL."""


@dataclass(frozen=True)
class WatermarkChange:
    """The watermark before and after a micro-batch; None as long as no row had an event time."""

    before: int | None
    after: int | None


class Operator(Protocol):
    """A window, a session or a join."""

    def late(self, mark: int) -> str:
        """Return SQL over incoming rows of any source: whether a row is too late for everything that is still open."""

    def partials(self, rows: Sequence[DataFrame], mark: int | None) -> DataFrame:
        """Return the partials of a micro-batch, from its rows by source, none of them late; without `BATCH`."""

    def emitted(self, state: DataFrame, marks: WatermarkChange, number: int) -> DataFrame:
        """Return the rows for the targets when micro-batch `number`, already in the state, moves the watermark."""

    def compacted(self, state: DataFrame, mark: int | None) -> DataFrame:
        """Return the state in fewer rows, without those that cannot matter any more; all columns stay, also `BATCH`."""

    def due(self) -> str:
        """Return SQL over the state for the watermark at which a row is emitted without new input; NULL for never."""
