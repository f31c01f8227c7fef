"""Finds the rows that a table refuses or that cannot be encoded, by trying parts of a micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

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


class WriteTrial(Protocol):
    """A trial write of some rows to a table."""

    max_tries: int

    def __call__(self, last: int, without: Collection[int]) -> FlowError | None:
        """Try all rows up to a number, except some; return the error, or None when the table takes them."""

    def close(self) -> None:
        """Release the resources of the tries."""


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
        ids = sorted(int(row[0]) for row in frame.select(ROW).collect())
        trial = self._trial(job, replace(job, shape=replace(job.shape, declared=with_row)), frame)
        try:
            return find_refused_rows(ids, trial)
        finally:
            trial.close()

    def _trial(self, job: WriteJob, with_row: WriteJob, frame: DataFrame) -> WriteTrial:
        sink = self.table.sink
        if isinstance(sink, SqlSink):
            write_session = sink.begin(job)
            try:
                return SingleStageTrial(sink, job, write_session, sink.stage(with_row, frame))
            except Exception as exc:
                if row_error(exc) is None:
                    raise
        return RestagingTrial(
            self.table, job, frame
        )  # a stage cannot be tried in part, or the rows cannot even be staged


@dataclass
class SingleStageTrial:
    """A trial that stages every row once, with its number; a try is one transaction over a part of the stage."""

    sink: SqlSink
    job: WriteJob
    write_session: WriteSession
    stage: Stage
    max_tries: int = 5_000

    def __call__(self, last: int, without: Collection[int]) -> FlowError | None:
        dialect, names = self.sink.dialect, self.job.shape.declared.column_names
        part = narrow_stage(self.stage, dialect, names, rows_up_to(dialect.quote(ROW), last, without))
        try:
            self.sink.publish(self.job, part, self.write_session)
        except Exception as exc:
            return row_refusal(exc)
        return None

    def close(self) -> None:
        self.sink.settle(self.job, self.write_session, None, None)


@dataclass
class RestagingTrial:
    """A trial that stages rows for every try, which takes about a second."""

    table: TableWriter
    job: WriteJob
    frame: DataFrame
    max_tries: int = 200

    def __call__(self, last: int, without: Collection[int]) -> FlowError | None:
        sink = self.table.sink
        write_session = sink.begin(self.job)
        try:
            stage = sink.stage(self.job, self.frame.where(rows_up_to(ROW, last, without)).drop(ROW))
            sink.publish(self.job, stage, write_session)
        except Exception as exc:
            return row_refusal(exc)
        finally:
            sink.settle(self.job, write_session, None, None)
        return None

    def close(self) -> None:
        """Do nothing: every try has removed its stage."""


def find_refused_rows(ids: Sequence[int], trial: WriteTrial) -> dict[int, str]:
    """Return the refused rows by their numbers, with their errors; none when all of them together are taken."""
    refused: dict[int, str] = {}
    tries = 0

    def ask(count: int) -> FlowError | None:
        nonlocal tries
        tries += 1
        if tries > trial.max_tries:
            raise DataError(
                f"more rows of this batch are refused than can be told apart in {trial.max_tries} tries, "
                f"the first of them: {next(iter(refused.values()), '')}",
                hint="correct the rows, or what refuses them; nothing of the batch was written there",
            )
        return trial(ids[count - 1], refused)

    taken, error = 0, ask(len(ids)) if ids else None
    while error is not None:
        fails = len(ids)
        while fails - taken > 1:
            middle = (taken + fails) // 2
            refusal = ask(middle)
            if refusal is None:
                taken = middle
            else:
                fails, error = middle, refusal
        refused[ids[fails - 1]] = error.what.removesuffix("; nothing was loaded")
        taken, error = fails, ask(len(ids)) if fails < len(ids) else None
    return refused


def rows_up_to(row: str, last: int, without: Collection[int]) -> str:
    """Return the SQL condition for the rows of a try."""
    left_out = f" AND {row} NOT IN ({', '.join(map(str, without))})" if without else ""
    return f"{row} <= {last}{left_out}"


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

    def __call__(self, last: int, without: Collection[int]) -> FlowError | None:
        some = self.rows.where(rows_up_to(ROW, last, without)).drop(ROW)
        try:
            self.encode(some).write.format("noop").mode("overwrite").save()
        except Exception as exc:
            return row_refusal(exc)
        return None

    def close(self) -> None:
        """Do nothing: a try leaves nothing."""


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
    ids = sorted(int(row[0]) for row in all_rows.select(ROW).collect())
    refused = find_refused_rows(ids, EncodingTrial(all_rows, encode))
    return all_rows.join(refusals_frame(all_rows, refused), ROW, "left").drop(ROW) if refused else None


ROW = "_flow_row"


def with_row_numbers(rows: DataFrame) -> DataFrame:
    """Return the rows with a number each, computed only once.

    A frame that is only persisted is computed anew where an executor is lost, and its rows may get other numbers then:
    good rows would be set aside in place of bad ones. Here the loss fails the micro-batch, which is retried as a whole.
    """
    return rows.selectExpr("*", f"monotonically_increasing_id() AS {ROW}").localCheckpoint(eager=True)
