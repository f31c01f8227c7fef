"""What a stream writes to: tables through the batch write path, brokers as messages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ematix_flow.engine.streams.culling import Culling
from ematix_flow.engine.streams.dead_letters import DeadLetters
from ematix_flow.engine.streams.fitting import WRONG, fitted, judged, last_of_each
from ematix_flow.engine.streams.tables import HIDDEN, TableWriter
from ematix_flow.engine.streams.taken import EVERYTHING, NOTHING, Taken
from ematix_flow.foundation.errors import FlowError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CARRIED = ("_raw", HIDDEN)
"""What travels with a row until it is written, for those that cannot be."""
STAGE = "write"


@dataclass(frozen=True)
class Fitted:
    """Rows for one target."""

    frame: DataFrame
    """As it takes them."""
    rows: DataFrame
    """With all that is known of them."""


class TargetWriter(Protocol):
    """One target of a stream that runs."""

    has_stage: bool
    """Whether rows lie beside the target before they are seen."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def fit(self, rows: DataFrame, open_until: ExitStack, dead: DeadLetters | None) -> Fitted:
        """The rows as the target takes them; what it cannot take goes to the dead letters."""

    def taken(self, number: int) -> Taken:
        """What the target has of a micro-batch that an earlier try may have written; asked when rows were fitted."""

    def write(self, number: int, given: Fitted, staged: Callable[[], None]) -> int:
        """Publish the micro-batch, unless it is there; rows written. `staged` may object before anything is published."""

    def cull(
        self, number: int, given: Fitted, error: FlowError, open_until: ExitStack, dead: DeadLetters
    ) -> Fitted | None:
        """After an error of the data: the rows without those that the target refuses, which go to the dead letters; None
        when it cannot be told which."""


@dataclass
class TableTargetWriter:
    """A table: rows in its types, published with the batch's token."""

    table: TableWriter
    has_stage: bool = True

    @property
    def name(self) -> str:
        return self.table.target.name

    def fit(self, rows: DataFrame, open_until: ExitStack, dead: DeadLetters | None) -> Fitted:
        shape = self.table.shape_for(rows.drop(*CARRIED).schema)
        if dead is not None:
            rows = dead.split(judged(rows, shape.declared, open_until), WRONG, stage=STAGE, target=self.name)
        frame = fitted(self._last(rows).drop(*CARRIED), shape.declared, open_until)
        return Fitted(frame, rows)

    def _last(self, rows: DataFrame) -> DataFrame:
        keys = self.table.keys
        return last_of_each(rows, keys) if keys and HIDDEN in rows.columns else rows

    def taken(self, number: int) -> Taken:
        return EVERYTHING if self.table.has(number) else NOTHING

    def write(self, number: int, given: Fitted, staged: Callable[[], None]) -> int:
        return self.table.write(number, given.frame, staged).counts.read

    def cull(
        self, number: int, given: Fitted, error: FlowError, open_until: ExitStack, dead: DeadLetters
    ) -> Fitted | None:
        marked = Culling(self.table, self._last, open_until).marked(number, given.rows)
        if marked is None:
            return None
        rows = dead.split(marked, WRONG, stage=STAGE, target=self.name)
        return self.fit(rows, open_until, None)
