"""The targets of a stream: tables through the batch write path, brokers as messages."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from ematix_flow.contract.write import WriteResult
from ematix_flow.streaming.cdc.column_types import inferred_columns
from ematix_flow.streaming.cdc.row_images import (
    CHANGE,
    is_required_condition,
    last_changes,
    rows_of_table,
    with_json_key,
    with_typed_keys,
)
from ematix_flow.streaming.dlq.commit_coverage import CommitCoverage
from ematix_flow.streaming.dlq.letters import FailedRows, split_failed
from ematix_flow.streaming.dlq.row_failures import TableRowSearch
from ematix_flow.streaming.runtime.fitting import WRONG, fit_rows, last_of_each, rows_with_errors
from ematix_flow.streaming.runtime.table_writer import HIDDEN, TableWrite, TableWriter, without_staged_columns

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
    failed: tuple[FailedRows, ...] = ()
    """The rows that the target cannot take."""


class StagedWrite(Protocol):
    """A micro-batch whose rows wait beside their target, or for being sent."""

    def publish(self) -> WriteResult:
        """Make the rows visible, with the commit token where the target stores one."""

    def settle(self, result: WriteResult) -> None:
        """Drop the stage."""


class TargetWrite(Protocol):
    """A micro-batch that was begun at its target."""

    @property
    def recovered(self) -> WriteResult | None:
        """Return what an earlier try published; None where the rows are to be staged."""

    def coverage(self) -> CommitCoverage:
        """Return the part of the micro-batch that earlier tries have committed."""

    def stage(self, rows: DataFrame) -> StagedWrite:
        """Write fitted rows beside the target, where it has a stage."""


class TargetWriter(Protocol):
    """A writer to one target of a running stream."""

    has_stage: bool
    """Whether rows are staged beside the target before they become visible."""

    @property
    def name(self) -> str:
        """Return the target's name in messages and logs."""

    def fit(self, rows: DataFrame, open_until: ExitStack, *, splits: bool) -> FittedRows:
        """Return the rows as the target takes them; with `splits`, without those that it cannot take."""

    def begin(self, number: int) -> TargetWrite:
        """Begin a micro-batch at the target, which drops the stage of an earlier try; call it after `fit`."""

    def without_refused(self, number: int, fitted: FittedRows, open_until: ExitStack) -> FittedRows | None:
        """Return the rows without those that the target refuses, now failed; None if those cannot be found."""

    def figures(self, number: int, result: WriteResult) -> Mapping[str, int]:
        """Return the counts of a written micro-batch other than rows, by metric name."""


@dataclass
class TableTargetWriter:
    """A writer to a table: rows in its types, published with the commit token of the micro-batch."""

    table: TableWriter
    has_stage: bool = True

    @property
    def name(self) -> str:
        return self.table.target.name

    def fit(self, rows: DataFrame, open_until: ExitStack, *, splits: bool) -> FittedRows:
        if CHANGE in rows.columns or self.table.changes is not None:
            return self._fit_changes(rows, open_until, splits=splits)
        shape = self.table.shape_for(rows.drop(*CARRIED).schema)
        failed: tuple[FailedRows, ...] = ()
        if splits:
            rows, wrong = self._split(rows_with_errors(rows, shape.declared, open_until))
            failed = (wrong,)
        frame = fit_rows(self._last(rows).drop(*CARRIED), shape.declared, open_until)
        return FittedRows(frame, rows, failed)

    def _split(self, rows: DataFrame) -> tuple[DataFrame, FailedRows]:
        return split_failed(rows, WRONG, stage=STAGE, target=self.name)

    def _fit_changes(self, rows: DataFrame, open_until: ExitStack, *, splits: bool) -> FittedRows:
        """Fit the last change of each key; rows without `CHANGE` were fitted before, and lost refused rows since."""
        if CHANGE in rows.columns:
            self.table.shape_for(rows.drop(CHANGE, *CARRIED).schema, lambda: inferred_columns(rows))
        strategy, table = self.table.changes, self.table.staged_table
        if strategy is None:
            raise AssertionError("the shape comes first")
        if CHANGE in rows.columns:
            rows = rows_of_table(rows, without_staged_columns(table), strategy)
        failed: tuple[FailedRows, ...] = ()
        if splits:
            with_errors = rows_with_errors(
                rows, without_staged_columns(table), open_until, required=is_required_condition
            )
            rows, wrong = self._split(with_errors)
            failed = (wrong,)
        rows = with_typed_keys(rows, table, strategy)
        return FittedRows(fit_rows(self._last(rows).drop(*CARRIED), table, open_until), rows, failed)

    def _last(self, rows: DataFrame) -> DataFrame:
        strategy = self.table.changes
        if strategy is not None:
            return with_json_key(last_changes(rows, strategy), strategy)
        keys = self.table.keys
        return last_of_each(rows, keys) if keys and HIDDEN in rows.columns else rows

    def begin(self, number: int) -> TableWrite:
        return self.table.begin(number)

    def without_refused(self, number: int, fitted: FittedRows, open_until: ExitStack) -> FittedRows | None:
        marked = TableRowSearch(self.table, self._last, open_until).mark_refused(number, fitted.rows)
        if marked is None:
            return None
        rows, wrong = self._split(marked)
        return replace(self.fit(rows, open_until, splits=False), failed=(wrong,))

    def figures(self, number: int, result: WriteResult) -> Mapping[str, int]:
        """Return the counts of changes that were applied before; log those that were left out."""
        counts = result.counts
        if counts.late:
            self._warn_of_late(number, counts.late)
        if counts.contradicted:
            self._warn_of_contradictions(number, counts.contradicted)
        return {REPEATED: counts.stale} if self.table.changes is not None else {}

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
