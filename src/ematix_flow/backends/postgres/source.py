"""The PostgreSQL source: Arrow batches by ADBC, split by block ranges, all parts from one snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from ematix_flow.backends.postgres.dialect import PostgresDialect
from ematix_flow.backends.postgres.errors import translate
from ematix_flow.backends.postgres.session import connect, dsn
from ematix_flow.contract.lane import ArrowParts, Carried
from ematix_flow.contract.read import ReadPlan, SourceColumn
from ematix_flow.dataplane.type_mapping import arrow_schema
from ematix_flow.declare.connections import PostgresConnection
from ematix_flow.declare.types import ColumnType, Numeric, Text
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.source import SqlSource, repeated_columns
from ematix_flow.foundation.lazy_imports import pa
from ematix_flow.sql.linear_query import LinearQuery, parse_linear, without_semicolon

PAGES_PER_SPLIT = 4096  # 32 MB: below that, a second connection costs more than it saves
_FEW_PAGES = 64
_DIALECT = PostgresDialect()
_UNBOUNDED_NUMERIC = Numeric(38, 18)


@dataclass(frozen=True)
class PostgresReadPlan(ReadPlan):
    """A read plan with the queries of its parts."""

    parts: tuple[str, ...] = ()


class PostgresSource(SqlSource):
    """A reader of queries on one PostgreSQL connection."""

    dialect = _DIALECT

    def plan(self, query: str, *, parallelism: int) -> PostgresReadPlan:
        """Return the plan; a query of one large table is split by its blocks."""
        query = without_semicolon(query)
        with connect(self._connection) as session:
            columns = _describe(session, query)
            estimate = _estimate(session, query)
            parts, reason = _parts(session, query, parallelism)
        return PostgresReadPlan(query, columns, len(parts), reason, estimate, True, parts)

    def arrow_parts(self, plan: ReadPlan, open_until: ExitStack) -> ArrowParts:
        """Return one part per block range, all from one snapshot."""
        parts = plan.parts if isinstance(plan, PostgresReadPlan) else (plan.query,)
        snapshot = _export_snapshot(self._connection, open_until) if len(parts) > 1 else None
        queries = [_transport(part, plan.columns) for part in parts]
        carried = self.arrow_columns(plan)
        return ArrowParts(len(queries), carried, _reader(dsn(self._connection), queries, snapshot, carried), translate)

    def carrier(self, column: SourceColumn) -> ColumnType:
        return _carrier(column)


def _carrier(column: SourceColumn) -> ColumnType:
    """Return the type in which a column is transported; types that Arrow cannot represent exactly become text."""
    if column.type is None:
        return _UNBOUNDED_NUMERIC if column.native == "numeric" else Text()
    return column.type


def _describe(session: SqlSession, query: str) -> tuple[SourceColumn, ...]:
    with session._cursor(f"SELECT * FROM (\n{query}\n) AS q LIMIT 0") as cursor:
        described = [(item.name, item.type_display) for item in cursor.description or ()]
    names = [name for name, _ in described]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise repeated_columns(twice)
    return tuple(SourceColumn(name, native, _DIALECT.parse_type(native)) for name, native in described)


def _estimate(session: SqlSession, query: str) -> int | None:
    """Return PostgreSQL's row estimate; a small table without statistics is counted instead."""
    plan = session.scalar(f"EXPLAIN (FORMAT JSON) {query}")
    if not isinstance(plan, list):
        return None
    expected, parsed = int(plan[0]["Plan"]["Plan Rows"]), parse_linear(query, "postgres")
    pages = _pages(session, parsed) if parsed is not None else None
    if parsed is None or pages is None or pages > _FEW_PAGES:
        return expected
    relation = _DIALECT.relation(parsed.schema, parsed.table)
    is_counted = session.scalar(
        f"SELECT reltuples >= 0 FROM pg_class WHERE oid = to_regclass({_DIALECT.text_literal(relation)})"
    )
    return expected if is_counted else min(expected, int(session.scalar(f"SELECT COUNT(*) FROM {relation}")))


def _parts(session: SqlSession, query: str, parallelism: int) -> tuple[tuple[str, ...], str]:
    parsed = parse_linear(query, "postgres")
    if parsed is None:
        return (query,), "not a plain query of one table"
    pages = _pages(session, parsed)
    if pages is None:
        return (query,), f"{parsed.table} is not an ordinary table"
    count = max(1, min(parallelism, pages // PAGES_PER_SPLIT))
    if count == 1:
        return (query,), "too small to split"
    edges = [pages * index // count for index in range(count)]
    parts = []
    for index, low in enumerate(edges):
        condition = f"{parsed.alias}.ctid >= '({low},0)'::tid"
        if index + 1 < count:  # the last part is open: blocks added since the count belong to it
            condition += f" AND {parsed.alias}.ctid < '({edges[index + 1]},0)'::tid"
        parts.append(parsed.where(condition))
    return tuple(parts), f"{count} block ranges of {parsed.table}"


def _pages(session: SqlSession, parsed: LinearQuery) -> int | None:
    name = _DIALECT.text_literal(_DIALECT.relation(parsed.schema, parsed.table))
    rows = session.rows(
        f"SELECT pg_relation_size(oid) / current_setting('block_size')::int FROM pg_class "
        f"WHERE oid = to_regclass({name}) AND relkind IN ('r', 'm')"
    )
    return int(rows[0][0]) if rows else None


def _export_snapshot(connection: PostgresConnection, open_until: ExitStack) -> str:
    exporter = open_until.enter_context(connect(connection))
    exporter.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    return str(exporter.scalar("SELECT pg_export_snapshot()"))


def _transport(query: str, columns: tuple[SourceColumn, ...]) -> str:
    return f"SELECT {', '.join(_expression(column) for column in columns)} FROM (\n{query}\n) AS q"


def _expression(column: SourceColumn) -> str:
    name = _DIALECT.quote(column.name)
    kind = _carrier(column).kind
    if kind == "numeric":  # the driver returns numerics as text anyway; the cast gives the column a name
        return f"{name}::text AS {name}"
    if kind in ("date", "timestamp", "timestamp_tz"):
        return _finite(name, column.native)
    if kind in ("json", "jsonb", "uuid"):
        return f"{name}::text AS {name}"
    if column.native.endswith("[]"):
        return f"to_json({name})::text AS {name}"
    if column.type is None or column.native.startswith("bpchar"):
        return f"{name}::text AS {name}"
    return name


def _finite(name: str, native: str) -> str:
    # Arrow drivers silently turn infinity into garbage. Spark has no infinity either, so the read must fail;
    # the cast below is evaluated only for such a value, and its text becomes the error message.
    base = native.split("(")[0]
    return f"CASE WHEN isfinite({name}) THEN {name} ELSE ({name}::text || ' cannot leave PostgreSQL')::{base} END AS {name}"


def _reader(url: str, queries: list[str], snapshot: str | None, carried: Carried) -> Any:
    def read(number: int) -> Iterator[Any]:
        import adbc_driver_postgresql.dbapi as adbc

        schema = arrow_schema(list(carried))
        with adbc.connect(url) as session, session.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            if snapshot:
                cursor.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
            cursor.execute("SET LOCAL TIME ZONE 'UTC'")
            cursor.execute(queries[number])
            for batch in cursor.fetch_record_batch():
                yield cast_to_schema(batch, schema)

    return read


def cast_to_schema(batch: Any, schema: Any) -> Any:
    """Return the batch with exactly the planned types."""
    columns = []
    for index, field in enumerate(schema):
        column = batch.column(index)
        if isinstance(column.type, pa.BaseExtensionType):
            column = column.storage
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
