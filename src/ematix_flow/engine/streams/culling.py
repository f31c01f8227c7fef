"""The search for rows that a table refuses by its own constraints, so that all others can be written.

Rows are tried in their order, in transactions that are rolled back: the shortest prefix of the batch that fails ends
with a refused row, and the search goes on without it. A row is therefore refused for its own values, or for an earlier
row with its key; and the remaining rows have been tried as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from ematix_flow.contract.write import Opening, Stage, WriteJob
from ematix_flow.declare.types import BigInt, Column
from ematix_flow.engine.statement_words import bad_row
from ematix_flow.engine.streams.fitting import WRONG, fitted
from ematix_flow.engine.streams.row_numbers import ROW, with_row_numbers
from ematix_flow.engine.streams.tables import HIDDEN, TableWriter
from ematix_flow.families.sql.narrowing import narrowed
from ematix_flow.families.sql.sink import SqlSink
from ematix_flow.foundation.errors import DataError, FlowError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Trial(Protocol):
    """A trial write of some rows to a table."""

    most_tries: int

    def __call__(self, last: int, without: Collection[int]) -> FlowError | None:
        """Try all rows up to a number, except some; return the error, or None when the table takes them."""

    def close(self) -> None:
        """Release the resources of the tries."""


@dataclass
class Culling:
    """The search in one micro-batch that one table refuses."""

    table: TableWriter
    last: Callable[[DataFrame], DataFrame]
    """Returns the row that counts of several rows with one key."""
    open_until: ExitStack

    def marked(self, number: int, rows: DataFrame) -> DataFrame | None:
        """Return the rows with the table's errors for those that it refuses; None when it refuses no single row."""
        all_rows = with_row_numbers(rows)
        refused: dict[int, str] = {}
        while True:
            found = self._found(number, all_rows.join(as_frame(all_rows, refused), ROW, "left_anti"))
            refused |= found
            # Without a refused row, an earlier row of its key is the one that counts, and was not tried yet.
            if not found or not self.table.keys:
                break
        return all_rows.join(as_frame(all_rows, refused), ROW, "left").drop(ROW) if refused else None

    def _found(self, number: int, rows: DataFrame) -> dict[int, str]:
        job = self.table.rehearsal(number)
        declared = job.shape.declared
        with_row = replace(declared, columns=(*declared.columns, Column(BigInt(), False, False, ROW)))
        frame = fitted(self.last(rows).drop("_raw", HIDDEN), with_row, self.open_until).localCheckpoint(eager=True)
        ids = sorted(int(row[0]) for row in frame.select(ROW).collect())
        trial = self._trial(job, replace(job, shape=replace(job.shape, declared=with_row)), frame)
        try:
            return refused_rows(ids, trial)
        finally:
            trial.close()

    def _trial(self, job: WriteJob, with_row: WriteJob, frame: DataFrame) -> Trial:
        sink = self.table.sink
        if isinstance(sink, SqlSink):
            opening = sink.begin(job)
            try:
                return OneStage(sink, job, opening, sink.stage(with_row, frame))
            except Exception as exc:
                if bad_row(exc) is None:
                    raise
        return ManyStages(self.table, job, frame)  # a stage cannot be tried in part, or the rows cannot even be staged


@dataclass
class OneStage:
    """A trial that stages every row once, with its number; a try is one transaction over a part of the stage."""

    sink: SqlSink
    job: WriteJob
    opening: Opening
    stage: Stage
    most_tries: int = 5_000

    def __call__(self, last: int, without: Collection[int]) -> FlowError | None:
        dialect, names = self.sink.dialect, self.job.shape.declared.column_names
        part = narrowed(self.stage, dialect, names, up_to(dialect.quote(ROW), last, without))
        try:
            self.sink.publish(self.job, part, self.opening)
        except Exception as exc:
            return refusal_of(exc)
        return None

    def close(self) -> None:
        self.sink.settle(self.job, self.opening, None, None)


@dataclass
class ManyStages:
    """A trial that stages rows for every try, which takes about a second."""

    table: TableWriter
    job: WriteJob
    frame: DataFrame
    most_tries: int = 200

    def __call__(self, last: int, without: Collection[int]) -> FlowError | None:
        sink = self.table.sink
        opening = sink.begin(self.job)
        try:
            stage = sink.stage(self.job, self.frame.where(up_to(ROW, last, without)).drop(ROW))
            sink.publish(self.job, stage, opening)
        except Exception as exc:
            return refusal_of(exc)
        finally:
            sink.settle(self.job, opening, None, None)
        return None

    def close(self) -> None:
        """Do nothing: every try has removed its stage."""


def refused_rows(ids: Sequence[int], trial: Trial) -> dict[int, str]:
    """Return the refused rows by their numbers, with their errors; none when all of them together are taken."""
    refused: dict[int, str] = {}
    tries = 0

    def ask(count: int) -> FlowError | None:
        nonlocal tries
        tries += 1
        if tries > trial.most_tries:
            raise DataError(
                f"more rows of this batch are refused than can be told apart in {trial.most_tries} tries, "
                f"the first of them: {next(iter(refused.values()), '')}",
                hint="correct the rows, or what refuses them; nothing of the batch was written there",
            )
        return trial(ids[count - 1], refused)

    taken, error = 0, ask(len(ids)) if ids else None
    while error is not None:
        fails = len(ids)
        while fails - taken > 1:
            middle = (taken + fails) // 2
            said = ask(middle)
            if said is None:
                taken = middle
            else:
                fails, error = middle, said
        refused[ids[fails - 1]] = error.what.removesuffix("; nothing was loaded")
        taken, error = fails, ask(len(ids)) if fails < len(ids) else None
    return refused


def up_to(row: str, last: int, without: Collection[int]) -> str:
    """Return the SQL condition for the rows of a try."""
    left_out = f" AND {row} NOT IN ({', '.join(map(str, without))})" if without else ""
    return f"{row} <= {last}{left_out}"


def refusal_of(exc: Exception) -> FlowError:
    """Return the error when the rows are its cause; raise it otherwise."""
    found = bad_row(exc)
    if found is None:
        raise exc
    return found


def as_frame(numbered: DataFrame, refused: Mapping[int, str]) -> DataFrame:
    """Return the numbers of refused rows with their errors as a frame."""
    made = numbered.sparkSession.createDataFrame(list(refused.items()), f"{ROW} BIGINT, {WRONG} STRING")
    return made.hint("broadcast")
