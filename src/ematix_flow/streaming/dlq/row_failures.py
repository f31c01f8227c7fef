"""Finds the rows of a micro-batch that fail, by trying parts of it: in a table, an encoder or a statement."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from ematix_flow.contract.backend import BatchSink
from ematix_flow.contract.write import Stage, WriteJob, WriteSession
from ematix_flow.declare.types import BigInt, Column
from ematix_flow.engine.sql.statement_errors import row_error
from ematix_flow.families.sql.sink import SqlSink
from ematix_flow.families.sql.statements import narrow_stage
from ematix_flow.foundation.errors import DataError, FlowError
from ematix_flow.streaming.runtime.fitting import WRONG, fit_rows
from ematix_flow.streaming.runtime.table_writer import HIDDEN, TableWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class RowTrial(Protocol):
    """A trial run of some rows, which leaves nothing behind."""

    max_tries: int
    may_fail_together: bool
    """Whether both halves of failing rows may pass; where not, the second half fails if the first one passes."""

    def __call__(self, first: int, last: int, without: Collection[int]) -> FlowError | None:
        """Try the rows between two numbers, except some, with the earlier rows if they matter; return the error."""

    def too_many(self, first_error: str) -> FlowError:
        """Return the error for rows of which more fail than can be separated."""


def find_failing_rows(ids: Sequence[int], trial: RowTrial, error: FlowError | None = None) -> dict[int, str]:
    """Return the failing rows by their numbers, with their errors, by halving the rows that fail.

    `error` is that of all rows, if it is known. Rows that fail only together are all returned.
    """
    failing: dict[int, str] = {}
    tries = 0

    def tried(low: int, high: int) -> FlowError | None:
        nonlocal tries
        tries += 1
        if tries > trial.max_tries:
            raise trial.too_many(next(iter(failing.values()), ""))
        return trial(ids[low], ids[high - 1], failing)

    def search(low: int, high: int, error: FlowError) -> None:
        reason = error.what.removesuffix("; nothing was loaded")
        if high - low == 1:
            failing[ids[low]] = reason
            return
        middle = (low + high) // 2
        left = tried(low, middle)
        if left is not None:
            search(low, middle, left)
        right = error if left is None and not trial.may_fail_together else tried(middle, high)
        if right is not None:
            search(middle, high, right)
        elif left is None:
            message = f"{reason} (only together with {high - low - 1} other row(s))"
            failing.update((row, message) for row in ids[low:high])

    whole = error or (tried(0, len(ids)) if ids else None)
    if whole is not None and ids:
        search(0, len(ids), whole)
    return failing


@dataclass
class TableRowSearch:
    """The search in one micro-batch that one table refuses."""

    table: TableWriter
    last: Callable[[DataFrame], DataFrame]
    """Returns the row that counts of several rows with one key."""
    open_until: ExitStack

    def mark_refused(self, number: int, rows: DataFrame) -> DataFrame | None:
        """Return the rows with the table's errors for those that it refuses; None when it refuses no single row."""
        all_rows = with_row_numbers(rows)
        refused: dict[int, str] = {}
        while True:
            refused_now = self._find_refused(number, all_rows.join(refusals_frame(all_rows, refused), ROW, "left_anti"))
            refused |= refused_now
            # Without a refused row, an earlier row of its key is the one that counts, and was not tried yet.
            if not refused_now or not self.table.keys:
                break
        return all_rows.join(refusals_frame(all_rows, refused), ROW, "left").drop(ROW) if refused else None

    def _find_refused(self, number: int, rows: DataFrame) -> dict[int, str]:
        job = self.table.dry_run_job(number)
        declared = job.shape.declared
        with_row = replace(declared, columns=(*declared.columns, Column(BigInt(), False, False, ROW)))
        frame = fit_rows(self.last(rows).drop("_raw", HIDDEN), with_row, self.open_until).localCheckpoint(eager=True)
        ids = row_numbers(frame)
        trial = self._trial(job, replace(job, shape=replace(job.shape, declared=with_row)), frame)
        try:
            return find_failing_rows(ids, trial)
        finally:
            trial.close()

    def _trial(self, job: WriteJob, with_row: WriteJob, frame: DataFrame) -> SingleStageTrial | RestagingTrial:
        sink = self.table.sink
        if isinstance(sink, SqlSink):
            write_session = sink.begin(job)
            try:
                return SingleStageTrial(sink, job, write_session, sink.stage(with_row, frame))
            except Exception as exc:
                row_refusal(exc)
        # A stage cannot be tried in part, or the rows cannot even be staged.
        return RestagingTrial(self.table.sink, job, frame)


@dataclass
class SingleStageTrial:
    """A trial that stages every row once, with its number; a try is one transaction over a part of the stage."""

    sink: SqlSink
    job: WriteJob
    write_session: WriteSession
    stage: Stage
    max_tries: int = 5_000
    may_fail_together: bool = False

    def __call__(self, first: int, last: int, without: Collection[int]) -> FlowError | None:
        dialect, names = self.sink.dialect, self.job.shape.declared.column_names
        part = narrow_stage(self.stage, dialect, names, rows_up_to(dialect.quote(ROW), last, without))
        try:
            self.sink.publish(self.job, part, self.write_session)
        except Exception as exc:
            return row_refusal(exc)
        return None

    def too_many(self, first_error: str) -> FlowError:
        return refused_too_many(self.max_tries, first_error)

    def close(self) -> None:
        self.sink.settle(self.job, self.write_session, None, None)


@dataclass
class RestagingTrial:
    """A trial that stages rows for every try, which takes about a second."""

    sink: BatchSink
    job: WriteJob
    frame: DataFrame
    max_tries: int = 200
    may_fail_together: bool = False

    def __call__(self, first: int, last: int, without: Collection[int]) -> FlowError | None:
        write_session = self.sink.begin(self.job)
        try:
            stage = self.sink.stage(self.job, self.frame.where(rows_up_to(ROW, last, without)).drop(ROW))
            self.sink.publish(self.job, stage, write_session)
        except Exception as exc:
            return row_refusal(exc)
        finally:
            self.sink.settle(self.job, write_session, None, None)
        return None

    def too_many(self, first_error: str) -> FlowError:
        return refused_too_many(self.max_tries, first_error)

    def close(self) -> None:
        """Do nothing: every try has removed its stage."""


def rows_up_to(row: str, last: int, without: Collection[int]) -> str:
    """Return the SQL condition for all rows up to a number, except some."""
    left_out = f" AND {row} NOT IN ({', '.join(map(str, without))})" if without else ""
    return f"{row} <= {last}{left_out}"


def refused_too_many(max_tries: int, first_error: str) -> FlowError:
    """Return the error for a target that refuses more rows than can be found."""
    return DataError(
        f"more rows of this batch are refused than can be separated in {max_tries} tries, "
        f"the first of them: {first_error}",
        hint="correct the rows, or what refuses them; nothing of the batch was written there",
    )


def row_refusal(exc: Exception) -> FlowError:
    """Return the error when the rows are its cause; raise it otherwise."""
    error = row_error(exc)
    if error is None:
        raise exc
    return error


def refusals_frame(numbered: DataFrame, refused: Mapping[int, str]) -> DataFrame:
    """Return the numbers of refused rows with their errors as a frame."""
    refusals = numbered.sparkSession.createDataFrame(list(refused.items()), f"{ROW} BIGINT, {WRONG} STRING")
    return refusals.hint("broadcast")


FALLIBLE = ("protobuf",)
"""Payload formats that cannot hold every value of Spark's types."""


@dataclass
class EncodingTrial:
    """A trial that encodes some rows and discards the messages."""

    rows: DataFrame
    encode: Callable[[DataFrame], DataFrame]
    max_tries: int = 400
    may_fail_together: bool = False

    def __call__(self, first: int, last: int, without: Collection[int]) -> FlowError | None:
        some = self.rows.where(f"{ROW} BETWEEN {first} AND {last}").drop(ROW)
        try:
            self.encode(some).write.format("noop").mode("overwrite").save()
        except Exception as exc:
            return row_refusal(exc)
        return None

    def too_many(self, first_error: str) -> FlowError:
        return refused_too_many(self.max_tries, first_error)


def mark_unencodable(
    rows: DataFrame, messages: DataFrame, encode: Callable[[DataFrame], DataFrame]
) -> DataFrame | None:
    """Return the rows with the errors of those that cannot be encoded; None where all `messages` can.

    `messages` are persisted by the caller, which sends them: without errors they are encoded once, and not examined.
    """
    try:
        messages.count()
    except Exception as exc:
        row_refusal(exc)
    else:
        return None
    all_rows = with_row_numbers(rows)
    refused = find_failing_rows(row_numbers(all_rows), EncodingTrial(all_rows, encode))
    return all_rows.join(refusals_frame(all_rows, refused), ROW, "left").drop(ROW) if refused else None


ROW = "_flow_row"


def with_row_numbers(rows: DataFrame) -> DataFrame:
    """Return the rows with a number each, computed only once.

    A frame that is only persisted is computed anew where an executor is lost, and its rows may get other numbers then:
    good rows would be set aside in place of bad ones. Here the loss fails the micro-batch, which is retried as a whole.
    """
    return rows.selectExpr("*", f"monotonically_increasing_id() AS {ROW}").localCheckpoint(eager=True)


def row_numbers(numbered: DataFrame) -> list[int]:
    """Return the numbers of the rows, in order."""
    return sorted(int(row[0]) for row in numbered.select(ROW).collect())
