"""The targets of a stream: tables through the batch write path, brokers as messages."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ematix_flow.engine.streams.change_types import learned_columns
from ematix_flow.engine.streams.culling import Culling
from ematix_flow.engine.streams.dead_letters import DeadLetters
from ematix_flow.engine.streams.fitting import WRONG, fitted, judged, last_of_each
from ematix_flow.engine.streams.images import (
    CHANGE,
    last_changes,
    must_be_there,
    of_table,
    with_json_key,
    with_typed_keys,
)
from ematix_flow.engine.streams.tables import HIDDEN, TableWriter, without_staged
from ematix_flow.engine.streams.taken import EVERYTHING, NOTHING, Taken
from ematix_flow.foundation.errors import FlowError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CARRIED = ("_raw", HIDDEN)
"""Columns that accompany a row until it is written, for the letters of rows that cannot be written."""
STAGE = "write"
REPEATED = "cdc_idempotent_skipped_total"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fitted:
    """The rows of a micro-batch, prepared for one target."""

    frame: DataFrame
    """The rows as the target takes them."""
    rows: DataFrame
    """The rows with all columns, as dead letters need them."""


class TargetWriter(Protocol):
    """A writer to one target of a running stream."""

    has_stage: bool
    """Whether rows are staged beside the target before they become visible."""

    @property
    def name(self) -> str:
        """Return the target's name in messages and logs."""

    def fit(self, rows: DataFrame, open_until: ExitStack, dead: DeadLetters | None) -> Fitted:
        """Return the rows as the target takes them; those that it cannot take become dead letters."""

    def taken(self, number: int) -> Taken:
        """Return the coverage of a micro-batch that an earlier try may have written; call it after `fit`."""

    def write(self, number: int, given: Fitted, staged: Callable[[], None]) -> int:
        """Publish the micro-batch unless it is there; return its row count. `staged` may raise before that."""

    def cull(
        self, number: int, given: Fitted, error: FlowError, open_until: ExitStack, dead: DeadLetters
    ) -> Fitted | None:
        """Return the rows without those that the target refuses, now dead letters; None if those cannot be found."""


@dataclass
class TableTargetWriter:
    """A writer to a table: rows in its types, published with the commit token of the micro-batch."""

    table: TableWriter
    has_stage: bool = True
    more: dict[str, int] = field(default_factory=dict)
    """Counts other than rows, by metric name."""

    @property
    def name(self) -> str:
        return self.table.target.name

    def fit(self, rows: DataFrame, open_until: ExitStack, dead: DeadLetters | None) -> Fitted:
        if CHANGE in rows.columns or self.table.changes is not None:
            return self._fit_changes(rows, open_until, dead)
        shape = self.table.shape_for(rows.drop(*CARRIED).schema)
        if dead is not None:
            rows = dead.split(judged(rows, shape.declared, open_until), WRONG, stage=STAGE, target=self.name)
        frame = fitted(self._last(rows).drop(*CARRIED), shape.declared, open_until)
        return Fitted(frame, rows)

    def _fit_changes(self, rows: DataFrame, open_until: ExitStack, dead: DeadLetters | None) -> Fitted:
        """Fit the last change of each key; rows without `CHANGE` were fitted before, and lost refused rows since."""
        if CHANGE in rows.columns:
            self.table.shape_for(rows.drop(CHANGE, *CARRIED).schema, lambda: learned_columns(rows))
        strategy, table = self.table.changes, self.table.staged_table
        if strategy is None:
            raise AssertionError("the shape comes first")
        if CHANGE in rows.columns:
            rows = of_table(rows, without_staged(table), strategy)
        if dead is not None:
            told = judged(rows, without_staged(table), open_until, told=must_be_there)
            rows = dead.split(told, WRONG, stage=STAGE, target=self.name)
        rows = with_typed_keys(rows, table, strategy)
        return Fitted(fitted(self._last(rows).drop(*CARRIED), table, open_until), rows)

    def _last(self, rows: DataFrame) -> DataFrame:
        strategy = self.table.changes
        if strategy is not None:
            return with_json_key(last_changes(rows, strategy), strategy)
        keys = self.table.keys
        return last_of_each(rows, keys) if keys and HIDDEN in rows.columns else rows

    def taken(self, number: int) -> Taken:
        return EVERYTHING if self.table.has(number) else NOTHING

    def write(self, number: int, given: Fitted, staged: Callable[[], None]) -> int:
        counts = self.table.write(number, given.frame, staged).counts
        if self.table.changes is not None:
            self.more[REPEATED] = self.more.get(REPEATED, 0) + counts.stale
        if counts.late:
            self._warn_of_late(number, counts.late)
        if counts.contradicted:
            self._warn_of_contradictions(number, counts.contradicted)
        return counts.read

    def _warn_of_late(self, number: int, late: int) -> None:
        cdc = self.table.spec.cdc
        _log.warning(
            "%s: %d change(s) of batch %d were left out, because they are more than %d ms older than what the table knows",
            self.name, late, number, cdc.out_of_order_tolerance_ms if cdc is not None else 0,
        )  # fmt: skip

    def _warn_of_contradictions(self, number: int, count: int) -> None:
        strategy = self.table.changes
        _log.warning(
            "%s: %d change(s) of batch %d were left out, because the source's log places them before what the table knows, "
            "although their clock is later. If the source was replaced or restored, and its log began anew, delete the rows "
            "of pipeline_name = '%s' from cdc_idempotency in the target, and rewind the stream to where the new log begins",
            self.name, count, number, strategy.gate if strategy is not None else "",
        )  # fmt: skip

    def cull(
        self, number: int, given: Fitted, error: FlowError, open_until: ExitStack, dead: DeadLetters
    ) -> Fitted | None:
        marked = Culling(self.table, self._last, open_until).marked(number, given.rows)
        if marked is None:
            return None
        rows = dead.split(marked, WRONG, stage=STAGE, target=self.name)
        return self.fit(rows, open_until, None)
