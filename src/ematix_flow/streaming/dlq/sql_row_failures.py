"""Finds the rows on which a statement fails, so that all others go on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ematix_flow.dataplane.spark_session import exact_settings
from ematix_flow.engine.sql.functions.argument_types import cast_arguments
from ematix_flow.engine.sql.functions.calls import Call, Calls
from ematix_flow.engine.sql.functions.clauses import clauses_of
from ematix_flow.engine.sql.statement import NamedRelation, Statement, is_row_wise, source_alias
from ematix_flow.families.lake.source import parse_query
from ematix_flow.foundation.errors import DataError, FlowError
from ematix_flow.sql.spark_text import quote
from ematix_flow.streaming.dlq.row_failures import (
    ROW,
    find_failing_rows,
    refusals_frame,
    row_numbers,
    row_refusal,
    with_row_numbers,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_TRIES = 400
"""Parts of a batch that are run before the search is given up."""
MOST_EXPLAINED = 10
"""Bad rows of a batch that are run alone for Spark's error; the user's functions return theirs for every row."""


@dataclass
class StatementRowSearch:
    """The search in one micro-batch."""

    statement: Statement
    relations: Mapping[str, NamedRelation]
    open_until: ExitStack
    hidden: Sequence[str] = ()
    max_tries: int = MOST_TRIES
    tries: int = field(default=0, init=False)

    def split_failing(self, rows: DataFrame) -> tuple[DataFrame, DataFrame | None]:
        """Return the persisted result, and the source rows that had to be left out with the error of each."""
        result, error = self._run_all(rows)
        if error is None:
            return result, None
        all_rows = with_row_numbers(rows)
        wrong = self._tried(all_rows, error)
        good = all_rows
        if wrong:
            good = self._without(all_rows, wrong)
            result, error = self._run_all(good.drop(ROW))
            if error is None:
                return result, self._with_reasons(all_rows, wrong)
        wrong |= find_failing_rows(row_numbers(good), _StatementTrial(self, good, self.max_tries), error)
        result, error = self._run_all(self._without(all_rows, wrong).drop(ROW))
        if error is not None:
            raise error.at(self.statement.where)
        return result, self._with_reasons(all_rows, wrong)

    def _run_all(self, rows: DataFrame) -> tuple[DataFrame, FlowError | None]:
        """Return the result, run and persisted; or the error, when some row is its cause."""
        frame = self.statement.frame(rows, self.relations, self.open_until, hidden=self.hidden)
        kept = frame.persist()
        try:
            kept.count()
        except Exception as exc:
            kept.unpersist()
            return frame, row_refusal(exc)
        self.open_until.callback(kept.unpersist)
        return kept, None

    def _persisted(self, rows: DataFrame) -> DataFrame:
        kept = rows.persist()
        self.open_until.callback(kept.unpersist)
        return kept

    def _tried(self, numbered: DataFrame, error: FlowError) -> dict[int, str]:
        """Return bad rows by one more run over all of them; none where the statement cannot be run in that way."""
        spark = numbered.sparkSession
        with exact_settings(spark):
            calls = self.statement.calls(numbered, self.relations)
            probing = row_test_statement(self.statement, calls)
            if probing is None:
                return {}
            try:
                self.statement.register_source(numbered, self.open_until)
                faults = {int(row[0]): row[1] for row in spark.sql(probing).collect()}
            except Exception:  # it failed outside of that expression, or Spark rejects it: halving follows
                return {}
        return self._explained(numbered, faults, error)

    def _explained(self, numbered: DataFrame, rows: Mapping[int, str | None], error: FlowError) -> dict[int, str]:
        """Return the error of each row; that of Spark for a row is only found by running it alone."""
        fallback = f"the transform fails for this row; the first error of its batch: {error.what}"
        wrong = {row: own or fallback for row, own in rows.items()}
        for row in sorted(row for row, own in rows.items() if own is None)[:MOST_EXPLAINED]:
            own = self.run(numbered.where(f"{ROW} = {row}"))
            wrong[row] = own.what if own is not None else fallback
        return wrong

    def run(self, rows: DataFrame) -> FlowError | None:
        """Run the statement over some rows, for its errors alone."""
        try:
            frame = self.statement.frame(rows.drop(ROW), self.relations, self.open_until)
            frame.write.format("noop").mode("overwrite").save()
        except Exception as exc:
            return row_refusal(exc)
        return None

    def _without(self, numbered: DataFrame, wrong: Mapping[int, str]) -> DataFrame:
        """Return the other rows, persisted: else Spark might evaluate the statement's conditions on bad rows first."""
        return self._persisted(numbered.join(self._as_frame(numbered, wrong), ROW, "left_anti"))

    def _with_reasons(self, numbered: DataFrame, wrong: Mapping[int, str]) -> DataFrame:
        return numbered.join(self._as_frame(numbered, wrong), ROW, "inner").drop(ROW)

    def _as_frame(self, numbered: DataFrame, wrong: Mapping[int, str]) -> DataFrame:
        return refusals_frame(numbered, wrong)


@dataclass
class _StatementTrial:
    """A trial that runs the statement over some rows; rows may fail only together, as in a sum that overflows."""

    search: StatementRowSearch
    numbered: DataFrame
    max_tries: int
    may_fail_together: bool = True

    def __call__(self, first: int, last: int, without: Collection[int]) -> FlowError | None:
        self.search.tries += 1
        return self.search.run(self.numbered.where(f"{ROW} BETWEEN {first} AND {last}"))

    def too_many(self, first_error: str) -> FlowError:
        return DataError(
            f"more rows of this batch fail in the transform than can be separated in {self.max_tries} tries",
            where=self.search.statement.where,
            hint="correct the SQL (try_cast, try_divide …) or the source; nothing was written",
        )


def row_test_statement(statement: Statement, calls: Calls) -> str | None:
    """Return a statement for the rows on which the user's fails; None where that does not make each row from one row.

    It returns row numbers with the error of a user's function, or NULL where something else failed.
    """
    tree = parse_query(calls.tokens.text)
    clauses = clauses_of(calls.tokens, tree)
    aggregates = any(call.is_aggregate for call in calls.all_calls.values())
    if clauses is None or aggregates or not is_row_wise(tree, statement.view):
        return None
    faults: list[str] = []

    def trying(call: Call, args: list[str], tail: str) -> str:
        called = f"{statement.registered.trying(call.handle)}({', '.join(cast_arguments(call, args, None))})"
        faults.append(f"{called}.wrong")
        return f"{called}.value"

    condition = calls.written(trying, clauses.where)
    always, faults = faults, []
    values = [calls.written(trying, item.span) for item in clauses.items]
    packed = [f"struct({value})" if item.is_star else value for value, item in zip(values, clauses.items, strict=True)]
    fields = ", ".join(f"'c{place}', {value}" for place, value in enumerate(packed))
    test = _failing_value(faults, f"concat('+', to_json(named_struct({fields})))")
    if condition:
        test = _failing_value(always, f"CASE WHEN {condition} THEN {test} ELSE '+' END")
    source = calls.written(trying, clauses.source)
    row = f"{quote(source_alias(tree, statement.view))}.{ROW}"
    each = f"SELECT {row} AS {ROW}, CAST(try_to_binary({test}, 'utf-8') AS STRING) AS outcome {source}"
    return f"SELECT {ROW}, substr(outcome, 2) FROM ({each}) WHERE (outcome IS NULL OR outcome LIKE '-%') AND {ROW} IS NOT NULL"


def _failing_value(faults: Sequence[str], value: str) -> str:
    """Return SQL for the value, or for the error of a user's function behind a minus."""
    if not faults:
        return value
    first = f"coalesce({', '.join(faults)})" if len(faults) > 1 else faults[0]
    return f"CASE WHEN {first} IS NOT NULL THEN concat('-', {first}) ELSE {value} END"
