"""What a stateful stream does with the rows of a micro-batch and with what it remembers: dataframes in, dataframes out.

An operator keeps nothing itself. What it wants to remember of a micro-batch are `partials`; all partials that are kept are
the state, and everything that comes out is a function of the state and of the watermark. Moments are microseconds since
1970, as `unix_micros` gives them.
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
class Marks:
    """The watermark before and after a micro-batch; None as long as no row has told a time."""

    before: int | None
    after: int | None


class Operator(Protocol):
    """A window, a session or a join."""

    def late(self, mark: int) -> str:
        """SQL over incoming rows of any source: whether a row comes too late for everything that is still open."""

    def partials(self, rows: Sequence[DataFrame], mark: int | None) -> DataFrame:
        """What a micro-batch adds to the state, of its rows by source, none of them late; without `BATCH`."""

    def emitted(self, state: DataFrame, marks: Marks, number: int) -> DataFrame:
        """What the targets get when micro-batch `number`, whose partials are in the state, moves the watermark."""

    def kept(self, state: DataFrame, mark: int | None) -> DataFrame:
        """The state in fewer rows, without what nobody can ask for any more; keeps the columns, `BATCH` included."""

    def due(self) -> str:
        """SQL over rows of the state: the moment that the watermark must reach for the row to come out by itself; NULL
        where it never does."""
