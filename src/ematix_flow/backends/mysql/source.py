"""The MySQL and MariaDB source: Arrow batches by connectorx, split by ranges of an integer primary key."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace

from ematix_flow.backends.mysql.dialect import MySqlDialect
from ematix_flow.backends.mysql.errors import DUPLICATE_COLUMN, SYNTAX, number_of, translate
from ematix_flow.backends.mysql.key_ranges import estimate_rows, parts_of
from ematix_flow.backends.mysql.result_columns import describe_columns, expression
from ematix_flow.backends.mysql.session import connect, login_of, requires_tls
from ematix_flow.backends.mysql.transport import reader
from ematix_flow.contract.lane import ArrowParts
from ematix_flow.contract.read import ReadPlan, SourceColumn
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.source import SqlSource
from ematix_flow.foundation.errors import FlowError, PlanError
from ematix_flow.sql.linear_query import without_semicolon

_DIALECT = MySqlDialect()


@dataclass(frozen=True)
class MySqlReadPlan(ReadPlan):
    """A read plan with the queries of its parts."""

    parts: tuple[str, ...] = ()
    encrypted: bool = False


class MySqlSource(SqlSource):
    """A reader of queries on one MySQL or MariaDB connection."""

    dialect = _DIALECT

    def plan(self, query: str, *, parallelism: int) -> MySqlReadPlan:
        """Return the plan; a query of one large table is split by its primary key."""
        query = without_semicolon(query)
        with connect(self._connection) as session:
            columns = _columns(session, query)
            parts, reason = parts_of(session, query, parallelism)
            rows = estimate_rows(session, query)
            encrypted = requires_tls(session)
        # Connections cannot share a snapshot, so parts may read different states.
        return MySqlReadPlan(query, columns, len(parts), reason, rows, len(parts) == 1, parts, encrypted)

    def arrow_parts(self, plan: ReadPlan, open_until: ExitStack) -> ArrowParts:
        """Return one part per key range."""
        own = plan if isinstance(plan, MySqlReadPlan) else self.plan(plan.query, parallelism=1)
        data = login_of(self._connection)
        if own.encrypted and not data.encrypted:
            data = replace(data, tls_mode="required")
        chosen = ", ".join(f"{expression(column)} AS {_DIALECT.quote(column.name)}" for column in plan.columns)
        queries = [f"SELECT {chosen} FROM (\n{part}\n) AS q" for part in own.parts]
        carried = self.arrow_columns(plan)
        return ArrowParts(len(queries), carried, reader(data, queries, carried), translate)


def _columns(session: SqlSession, query: str) -> tuple[SourceColumn, ...]:
    try:
        return describe_columns(session, f"SELECT * FROM (\n{query}\n) AS q LIMIT 0")
    except FlowError as exc:
        number = number_of(exc.__cause__)
        if number == DUPLICATE_COLUMN:
            raise PlanError(f"the query gives a column twice: {exc.what}", hint="name them apart with AS") from exc
        if number == SYNTAX:  # raises the syntax error of the query itself, without the SELECT around it
            session.execute(f"PREPARE flow_query FROM {_DIALECT.text_literal(query)}")
        raise
