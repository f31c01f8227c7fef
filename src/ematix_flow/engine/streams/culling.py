"""Finds the rows that a table refuses by its own constraints, so that all others can be written.

Rows are tried in their order, in transactions that are rolled back: the shortest beginning of the batch that fails ends
with a row that is refused, and the search goes on without it. A row is therefore refused for what it is, or for a row
before it that has its key; and what remains has been tried as a whole.
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
    """Asks a table what it would say to some rows."""

    most_tries: int

    def __call__(self, last: int, without: Collection[int]) -> FlowError | None:
        """To all rows up to a number, except some; None when it takes them."""

    def close(self) -> None:
        """Leave nothing behind."""


@dataclass
class Culling:
    """One table, and the micro-batch that it refuses."""

    table: TableWriter
    last: Callable[[DataFrame], DataFrame]
    """Of several rows with one key, the one that counts."""
    open_until: ExitStack

    def marked(self, number: int, rows: DataFrame) -> DataFrame | None:
        """The rows, with what the table says to those that it refuses; None when it refuses none by itself."""
        all_rows = with_row_numbers(rows)
        refused: dict[int, str] = {}
        while True:
            found = self._found(number, all_rows.join(as_frame(all_rows, refused), ROW, "left_anti"))
            refused |= found
            # Behind a row that goes, an earlier one of its key comes to light, which nobody has tried yet.
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
        return ManyStages(self.table, job, frame)  # it cannot be asked about a part of a stage, or not even be staged


@dataclass
class OneStage:
    """Every row is staged once, with its number; a try is one transaction over a part of the stage."""

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
    """Rows are staged for every try, which takes a second or so."""

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
        """Every try has left nothing."""


def refused_rows(ids: Sequence[int], trial: Trial) -> dict[int, str]:
    """The rows, by their numbers, that are refused, and why; none when all of them together are taken."""
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
    """The condition for the rows of a try."""
    left_out = f" AND {row} NOT IN ({', '.join(map(str, without))})" if without else ""
    return f"{row} <= {last}{left_out}"


def refusal_of(exc: Exception) -> FlowError:
    """The error, when the rows are its reason."""
    found = bad_row(exc)
    if found is None:
        raise exc
    return found


def as_frame(numbered: DataFrame, refused: Mapping[int, str]) -> DataFrame:
    """The numbers of refused rows, and why they are."""
    made = numbered.sparkSession.createDataFrame(list(refused.items()), f"{ROW} BIGINT, {WRONG} STRING")
    return made.hint("broadcast")
