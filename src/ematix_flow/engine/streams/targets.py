"""What a stream writes to: tables through the batch write path, brokers as messages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ematix_flow.engine.streams.dead_letters import DeadLetters
from ematix_flow.engine.streams.fitting import WRONG, fitted, judged, last_of_each
from ematix_flow.engine.streams.tables import HIDDEN, TableWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CARRIED = ("_raw", HIDDEN)
"""What travels with a row until it is written, for those that cannot be."""


class TargetWriter(Protocol):
    """One target of a stream that runs."""

    has_stage: bool
    """Whether rows lie beside the target before they are seen."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def fit(self, rows: DataFrame, open_until: ExitStack, dead: DeadLetters | None) -> DataFrame:
        """The rows as the target takes them; what it cannot take goes to the dead letters."""

    def write(self, number: int, fitted: DataFrame, staged: Callable[[], None]) -> int:
        """Publish the micro-batch, unless it is there; rows written. `staged` may object before anything is published."""


@dataclass
class TableTargetWriter:
    """A table: rows in its types, published with the batch's token."""

    table: TableWriter
    has_stage: bool = True

    @property
    def name(self) -> str:
        return self.table.target.name

    def fit(self, rows: DataFrame, open_until: ExitStack, dead: DeadLetters | None) -> DataFrame:
        shape = self.table.shape_for(rows.drop(*CARRIED).schema)
        if dead is not None:
            rows = dead.split(judged(rows, shape.declared, open_until), WRONG, stage="write", target=self.name)
        keys = self.table.keys
        if keys and HIDDEN in rows.columns:
            rows = last_of_each(rows, keys)
        return fitted(rows.drop(*CARRIED), shape.declared, open_until)

    def write(self, number: int, fitted: DataFrame, staged: Callable[[], None]) -> int:
        return self.table.write(number, fitted, staged).counts.read
