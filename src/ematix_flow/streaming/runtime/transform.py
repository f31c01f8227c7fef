"""The SQL transform of a stream, run over the rows of each micro-batch with its lookups and functions."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.declare.udfs import functions_of
from ematix_flow.engine.sql.statement import SOURCE, Statement, is_row_wise
from ematix_flow.families.lake.source import parse_query
from ematix_flow.foundation.errors import FlowError
from ematix_flow.streaming.dlq.letters import FailedRows
from ematix_flow.streaming.dlq.sql_row_failures import StatementRowSearch
from ematix_flow.streaming.runtime.fitting import WRONG
from ematix_flow.streaming.runtime.lookups import Lookups
from ematix_flow.streaming.runtime.table_writer import HIDDEN
from ematix_flow.streaming.runtime.targets import CARRIED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STAGE = "transform"


class Transform:
    """The transform of a stream's rows between decoding and writing."""

    def __init__(self, spec: StreamSpec) -> None:
        self._spec = spec
        self.lookups = Lookups(spec.lookups)
        self.reads_all_rows = _reads_all_rows(spec.transform_sql)
        """Whether the result cannot be made without reading every row of the source."""
        self.statement = Statement(
            spec.transform_sql or "SELECT * FROM source",
            dialect=spec.dialect,
            functions=functions_of(spec.udfs, spec.aggregate_udfs),
            where=spec.where,
        )

    def apply(self, rows: DataFrame, open_until: ExitStack) -> DataFrame:
        """Return the rows for the targets: nothing is run here, and a row that the SQL fails on fails the batch later.

        An error in the SQL itself is raised at once.
        """
        if self._spec.transform_sql is None:
            return rows
        return self.statement.frame(rows, self.lookups.current(), open_until, hidden=(HIDDEN,))

    def apply_row_by_row(self, rows: DataFrame, open_until: ExitStack) -> tuple[DataFrame, FailedRows | None]:
        """Return the rows for the targets, run and persisted, and the source rows on which the SQL fails."""
        if self._spec.transform_sql is None:
            return rows, None
        search = StatementRowSearch(self.statement, self.lookups.current(), open_until, hidden=CARRIED)
        result, bad = search.split_failing(rows)
        return result, FailedRows(bad, WRONG, STAGE) if bad is not None else None

    def close(self) -> None:
        """Drop the lookups."""
        self.lookups.close()


def _reads_all_rows(sql: str | None) -> bool:
    """Return whether nothing in the statement lets Spark stop early, as a LIMIT or a join with an empty table does."""
    from sqlglot import exp

    if sql is None:
        return True
    try:
        tree = parse_query(sql)
    except FlowError:  # reported when the statement runs, or in another dialect
        return False
    return is_row_wise(tree, SOURCE) and tree.find(exp.Join) is None
