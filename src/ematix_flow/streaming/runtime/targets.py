"""The targets of a stream: tables through the batch write path, brokers as messages."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ematix_flow.foundation.errors import FlowError
from ematix_flow.streaming.cdc.column_types import inferred_columns
from ematix_flow.streaming.cdc.row_images import (
    CHANGE,
    is_required_condition,
    last_changes,
    rows_of_table,
    with_json_key,
    with_typed_keys,
)
from ematix_flow.streaming.dlq.collector import DeadLetterCollector
from ematix_flow.streaming.dlq.commit_coverage import EVERYTHING, NOTHING, CommitCoverage
from ematix_flow.streaming.dlq.row_failures import TableRowSearch
from ematix_flow.streaming.runtime.fitting import WRONG, fit_rows, last_of_each, rows_with_errors
from ematix_flow.streaming.runtime.table_writer import HIDDEN, TableWriter, without_staged_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CARRIED = ("_raw", HIDDEN)
"""Columns that accompany a row until it is written, for the letters of rows that cannot be written."""
STAGE = "write"
REPEATED = "cdc_idempotent_skipped_total"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FittedRows:
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

    def fit(self, rows: DataFrame, open_until: ExitStack, dead_letters: DeadLetterCollector | None) -> FittedRows:
        """Return the rows as the target takes them; those that it cannot take become dead letters."""

    def coverage(self, number: int) -> CommitCoverage:
        """Return the coverage of a micro-batch that an earlier try may have written; call it after `fit`."""

    def write(self, number: int, fitted: FittedRows, staged: Callable[[], None]) -> int:
        """Publish the micro-batch unless it is there; return its row count. `staged` may raise before that."""

    def without_refused(
        self,
        number: int,
        fitted: FittedRows,
        error: FlowError,
        open_until: ExitStack,
        dead_letters: DeadLetterCollector,
    ) -> FittedRows | None:
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

    def fit(self, rows: DataFrame, open_until: ExitStack, dead_letters: DeadLetterCollector | None) -> FittedRows:
        if CHANGE in rows.columns or self.table.changes is not None:
            return self._fit_changes(rows, open_until, dead_letters)
        shape = self.table.shape_for(rows.drop(*CARRIED).schema)
        if dead_letters is not None:
            rows = dead_letters.split(
                rows_with_errors(rows, shape.declared, open_until), WRONG, stage=STAGE, target=self.name
            )
        frame = fit_rows(self._last(rows).drop(*CARRIED), shape.declared, open_until)
        return FittedRows(frame, rows)

    def _fit_changes(
        self, rows: DataFrame, open_until: ExitStack, dead_letters: DeadLetterCollector | None
    ) -> FittedRows:
        """Fit the last change of each key; rows without `CHANGE` were fitted before, and lost refused rows since."""
        if CHANGE in rows.columns:
            self.table.shape_for(rows.drop(CHANGE, *CARRIED).schema, lambda: inferred_columns(rows))
        strategy, table = self.table.changes, self.table.staged_table
        if strategy is None:
            raise AssertionError("the shape comes first")
        if CHANGE in rows.columns:
            rows = rows_of_table(rows, without_staged_columns(table), strategy)
        if dead_letters is not None:
            with_errors = rows_with_errors(
                rows, without_staged_columns(table), open_until, required=is_required_condition
            )
            rows = dead_letters.split(with_errors, WRONG, stage=STAGE, target=self.name)
        rows = with_typed_keys(rows, table, strategy)
        return FittedRows(fit_rows(self._last(rows).drop(*CARRIED), table, open_until), rows)

    def _last(self, rows: DataFrame) -> DataFrame:
        strategy = self.table.changes
        if strategy is not None:
            return with_json_key(last_changes(rows, strategy), strategy)
        keys = self.table.keys
        return last_of_each(rows, keys) if keys and HIDDEN in rows.columns else rows

    def coverage(self, number: int) -> CommitCoverage:
        return EVERYTHING if self.table.is_published(number) else NOTHING

    def write(self, number: int, fitted: FittedRows, staged: Callable[[], None]) -> int:
        counts = self.table.write(number, fitted.frame, staged).counts
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

    def without_refused(
        self,
        number: int,
        fitted: FittedRows,
        error: FlowError,
        open_until: ExitStack,
        dead_letters: DeadLetterCollector,
    ) -> FittedRows | None:
        marked = TableRowSearch(self.table, self._last, open_until).mark_refused(number, fitted.rows)
        if marked is None:
            return None
        rows = dead_letters.split(marked, WRONG, stage=STAGE, target=self.name)
        return self.fit(rows, open_until, None)
