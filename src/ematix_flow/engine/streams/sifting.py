"""The search for rows on which a statement fails, so that all others can go on.

A batch is tried as a whole first: one without bad rows costs nothing more than caching the result. After a failure

- a statement that makes each row from one row is run once more with every row's expressions inside a Spark expression
  that returns NULL for any failure in it (`try_to_binary`), and with user functions that return their errors;
- the remaining rows are tried again, and after a further failure cut into halves until single rows fail: this also
  works for statements with joins, aggregates or windows, whose bad values are still those of some row.

Rows that fail only together are all set aside. No row is left out by guessing: the remaining rows have been run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ematix_flow.engine.functions.arguments import cast
from ematix_flow.engine.functions.calls import Call, Calls
from ematix_flow.engine.functions.clauses import clauses_of
from ematix_flow.engine.statement import Relation, Statement, alias_of, is_row_wise
from ematix_flow.engine.statement_words import bad_row
from ematix_flow.engine.streams.row_numbers import ROW, with_row_numbers
from ematix_flow.families.lake.session import exactly, quote
from ematix_flow.families.lake.sql_source import parsed
from ematix_flow.foundation.errors import DataError, FlowError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WRONG = "_flow_wrong"
MOST_TRIES = 400
"""Parts of a batch that are run one by one before the search is given up."""
MOST_EXPLAINED = 10
"""Bad rows of a batch that are run alone for Spark's error; the user's functions return theirs for every row."""


class Sorter(Protocol):
    """A sink for bad rows."""

    def set_aside(self, rows: DataFrame, column: str, *, stage: str) -> None:
        """Store rows whose column has the error of each."""


@dataclass
class Sieve:
    """The search in one micro-batch."""

    statement: Statement
    relations: Mapping[str, Relation]
    open_until: ExitStack
    hidden: Sequence[str] = ()
    most_tries: int = MOST_TRIES
    tries: int = field(default=0, init=False)

    def sifted(self, rows: DataFrame) -> tuple[DataFrame, DataFrame | None]:
        """Return the persisted result, and the source rows that had to be left out with the error of each."""
        made, error = self._made(rows)
        if error is None:
            return made, None
        all_rows = with_row_numbers(rows)
        wrong = self._tried(all_rows, error)
        good = all_rows
        if wrong:
            good = self._without(all_rows, wrong)
            made, error = self._made(good.drop(ROW))
            if error is None:
                return made, self._with_words(all_rows, wrong)
        wrong |= self._halved(good, error)
        made, error = self._made(self._without(all_rows, wrong).drop(ROW))
        if error is not None:
            raise error.at(self.statement.where)
        return made, self._with_words(all_rows, wrong)

    def _made(self, rows: DataFrame) -> tuple[DataFrame, FlowError | None]:
        """Return the result, run and persisted; or the error, when some row is its cause."""
        frame = self.statement.frame(rows, self.relations, self.open_until, hidden=self.hidden)
        kept = frame.persist()
        try:
            kept.count()
        except Exception as exc:
            kept.unpersist()
            return frame, self._bad_row(exc)
        self.open_until.callback(kept.unpersist)
        return kept, None

    def _bad_row(self, exc: Exception) -> FlowError:
        found = bad_row(exc)
        if found is None:
            raise exc
        return found

    def _kept(self, rows: DataFrame) -> DataFrame:
        kept = rows.persist()
        self.open_until.callback(kept.unpersist)
        return kept

    def _tried(self, numbered: DataFrame, error: FlowError) -> dict[int, str]:
        """Return bad rows by one more run over all of them; none where the statement cannot be run in that way."""
        spark = numbered.sparkSession
        with exactly(spark):
            calls = self.statement.calls(numbered, self.relations)
            probing = tried_text(self.statement, calls)
            if probing is None:
                return {}
            try:
                self.statement.show(numbered, self.open_until)
                found = {int(row[0]): row[1] for row in spark.sql(probing).collect()}
            except Exception:  # it failed outside of that expression, or Spark rejects it: halving follows
                return {}
        return self._explained(numbered, found, error)

    def _explained(self, numbered: DataFrame, rows: Mapping[int, str | None], error: FlowError) -> dict[int, str]:
        """Return the error of each row; that of Spark for a row is only found by running it alone."""
        said = f"the transform fails for this row; the first error of its batch: {error.what}"
        wrong = {row: own or said for row, own in rows.items()}
        for row in sorted(row for row, own in rows.items() if own is None)[:MOST_EXPLAINED]:
            own = self._run(numbered.where(f"{ROW} = {row}"))
            wrong[row] = own.what if own is not None else said
        return wrong

    def _halved(self, numbered: DataFrame, error: FlowError) -> dict[int, str]:
        """Return bad rows by cutting the batch into halves."""
        ids = sorted(int(row[0]) for row in numbered.select(ROW).collect())
        wrong: dict[int, str] = {}
        waiting: list[tuple[int, int, FlowError]] = [(0, len(ids), error)]
        while waiting:
            low, high, reason = waiting.pop()
            if high - low <= 1:
                wrong.update({ids[place]: reason.what for place in range(low, high)})
                continue
            middle = (low + high) // 2
            halves = [
                (start, end, self._run_part(numbered, ids, start, end))
                for start, end in ((low, middle), (middle, high))
            ]
            failed = [(start, end, found) for start, end, found in halves if found is not None]
            if not failed:
                said = f"{reason.what} (only together with {high - low - 1} other row(s))"
                wrong.update({ids[place]: said for place in range(low, high)})
            waiting += failed
        return wrong

    def _run_part(self, numbered: DataFrame, ids: list[int], low: int, high: int) -> FlowError | None:
        self.tries += 1
        if self.tries > self.most_tries:
            raise DataError(
                f"more rows of this batch fail in the transform than can be told apart in {self.most_tries} tries",
                where=self.statement.where,
                hint="correct the SQL (try_cast, try_divide …) or the source; nothing was written",
            )
        return self._run(numbered.where(f"{ROW} BETWEEN {ids[low]} AND {ids[high - 1]}"))

    def _run(self, rows: DataFrame) -> FlowError | None:
        """Run the statement over some rows, for its errors alone."""
        try:
            frame = self.statement.frame(rows.drop(ROW), self.relations, self.open_until)
            frame.write.format("noop").mode("overwrite").save()
        except Exception as exc:
            return self._bad_row(exc)
        return None

    def _without(self, numbered: DataFrame, wrong: Mapping[int, str]) -> DataFrame:
        """Return the other rows, persisted: else Spark might evaluate the statement's conditions on bad rows first."""
        return self._kept(numbered.join(self._as_frame(numbered, wrong), ROW, "left_anti"))

    def _with_words(self, numbered: DataFrame, wrong: Mapping[int, str]) -> DataFrame:
        return numbered.join(self._as_frame(numbered, wrong), ROW, "inner").drop(ROW)

    def _as_frame(self, numbered: DataFrame, wrong: Mapping[int, str]) -> DataFrame:
        made = numbered.sparkSession.createDataFrame(list(wrong.items()), f"{ROW} BIGINT, {WRONG} STRING")
        return made.hint("broadcast")


def tried_text(statement: Statement, calls: Calls) -> str | None:
    """Return a statement for the rows on which the user's fails; None where that does not make each row from one row.

    It returns row numbers with the error of a user's function, or NULL where something else failed.
    """
    tree = parsed(calls.tokens.text)
    clauses = clauses_of(calls.tokens, tree)
    aggregates = any(call.is_aggregate for call in calls.found.values())
    if clauses is None or aggregates or not is_row_wise(tree, statement.view):
        return None
    faults: list[str] = []

    def trying(call: Call, args: list[str], tail: str) -> str:
        called = f"{statement.registered.trying(call.handle)}({', '.join(cast(call, args, None))})"
        faults.append(f"{called}.wrong")
        return f"{called}.value"

    condition = calls.written(trying, clauses.where)
    always, faults = faults, []
    values = [calls.written(trying, item.span) for item in clauses.items]
    packed = [f"struct({value})" if item.is_star else value for value, item in zip(values, clauses.items, strict=True)]
    fields = ", ".join(f"'c{place}', {value}" for place, value in enumerate(packed))
    made = _failing(faults, f"concat('+', to_json(named_struct({fields})))")
    if condition:
        made = _failing(always, f"CASE WHEN {condition} THEN {made} ELSE '+' END")
    source = calls.written(trying, clauses.source)
    row = f"{quote(alias_of(tree, statement.view))}.{ROW}"
    each = f"SELECT {row} AS {ROW}, CAST(try_to_binary({made}, 'utf-8') AS STRING) AS said {source}"
    return f"SELECT {ROW}, substr(said, 2) FROM ({each}) WHERE (said IS NULL OR said LIKE '-%') AND {ROW} IS NOT NULL"


def _failing(faults: Sequence[str], value: str) -> str:
    """Return SQL for the value, or for the error of a user's function behind a minus."""
    if not faults:
        return value
    first = f"coalesce({', '.join(faults)})" if len(faults) > 1 else faults[0]
    return f"CASE WHEN {first} IS NOT NULL THEN concat('-', {first}) ELSE {value} END"
