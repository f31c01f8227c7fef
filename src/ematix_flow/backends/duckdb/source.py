"""The DuckDB source: DuckDB writes the result as Parquet and closes its file, then Spark reads it in parallel."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.duckdb.dialect import DuckdbDialect
from ematix_flow.backends.duckdb.session import connect_source, database_path
from ematix_flow.contract.lane import ArrowParts
from ematix_flow.contract.read import ReadPlan, SourceColumn
from ematix_flow.dataplane.parquet_parts import parquet_files, parquet_parts
from ematix_flow.dataplane.parquet_stage import scratch_dir
from ematix_flow.dataplane.type_mapping import spark_schema
from ematix_flow.declare.connections import DuckDBConnection
from ematix_flow.declare.types import BigInt, Column, ColumnType, Integer, Numeric, SmallInt, Text, Timestamp
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.source import SqlSource, repeated_columns
from ematix_flow.foundation.errors import FlowError, RunFailed
from ematix_flow.sql.linear_query import without_semicolon

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_DIALECT = DuckdbDialect()
_NEAREST: dict[str, ColumnType] = {
    "TINYINT": SmallInt(), "UTINYINT": SmallInt(), "USMALLINT": Integer(), "UINTEGER": BigInt(),
    "UBIGINT": Numeric(20, 0), "HUGEINT": Numeric(38, 0), "TIMESTAMP_S": Timestamp(), "TIMESTAMP_MS": Timestamp(),
    "TIMESTAMP_NS": Timestamp(),
}  # fmt: skip
_NESTED = ("STRUCT(", "MAP(", "UNION(", "VARIANT")
_BOUNDS = {
    "date": ("DATE '0001-01-01'", "DATE '9999-12-31'"),
    "timestamp": ("TIMESTAMP '0001-01-01 00:00:00'", "TIMESTAMP '9999-12-31 23:59:59.999999'"),
    "timestamp_tz": ("TIMESTAMPTZ '0001-01-01 00:00:00+00'", "TIMESTAMPTZ '9999-12-31 23:59:59.999999+00'"),
}


class DuckdbSource(SqlSource):
    """A reader of queries on one DuckDB connection."""

    dialect = _DIALECT

    def __init__(self, connection: DuckDBConnection) -> None:
        super().__init__(connection)
        database_path(connection)

    def plan(self, query: str, *, parallelism: int) -> ReadPlan:
        """Return the columns and estimated rows of the result, without reading it."""
        query = without_semicolon(query)
        with connect_source(self._connection) as session:
            columns = _describe(session, query)
            estimate = _estimate(session, query)
        return ReadPlan(query, columns, 1, "DuckDB writes the result as Parquet, which Spark splits", estimate, True)

    def read(self, plan: ReadPlan, spark: SparkSession, open_until: ExitStack) -> DataFrame:
        """Return the result as a frame over the Parquet files that DuckDB wrote."""
        carried = [(f"c{index}", column.type or Text()) for index, column in enumerate(plan.columns)]
        reader = spark.read.schema(spark_schema(carried)).option("datetimeRebaseMode", "CORRECTED")
        return reader.parquet(str(self._copied(plan, open_until))).toDF(*(column.name for column in plan.columns))

    def arrow_parts(self, plan: ReadPlan, open_until: ExitStack) -> ArrowParts:
        """Return the Parquet files that DuckDB wrote, distributed over the tasks."""
        files = parquet_files(sorted(self._copied(plan, open_until).glob("*.parquet")))
        if isinstance(files, str):
            raise RunFailed(f"DuckDB's copy of the rows cannot be read: {files}", hint="run it again")
        names = [f"c{index}" for index in range(len(plan.columns))]
        return parquet_parts(files, names, self.arrow_columns(plan), parallelism=os.cpu_count() or 2)

    def _copied(self, plan: ReadPlan, open_until: ExitStack) -> Path:
        """Copy the result to Parquet by one statement, hence one snapshot; the file is closed before a task begins."""
        folder = scratch_dir(open_until) / "rows"
        chosen = ", ".join(f"{_expression(column)} AS c{index}" for index, column in enumerate(plan.columns))
        place = _DIALECT.text_literal(str(folder))
        with connect_source(self._connection) as session:
            session.execute(
                f"COPY (SELECT {chosen} FROM (\n{plan.query}\n) AS q) TO {place} (FORMAT parquet, PER_THREAD_OUTPUT true)"
            )
        return folder


def _describe(session: SqlSession, query: str) -> tuple[SourceColumn, ...]:
    described = [(str(row[0]), str(row[1]).strip('"')) for row in session.rows(f"DESCRIBE {query}")]
    names = [name.lower() for name, _ in described]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise repeated_columns(twice)
    return tuple(SourceColumn(name, native, _type_of(native)) for name, native in described)


def _type_of(native: str) -> ColumnType:
    return _DIALECT.parse_type(native) or _NEAREST.get(native) or Text()


def _estimate(session: SqlSession, query: str) -> int | None:
    with suppress(FlowError, ValueError, KeyError, IndexError, TypeError):
        plan: Any = json.loads(session.rows(f"EXPLAIN (FORMAT json) {query}")[0][1])
        return int(plan[0]["extra_info"]["Estimated Cardinality"])
    return None


def _expression(column: SourceColumn) -> str:
    name = _DIALECT.quote(column.name)
    kind = column.type or Text()
    native = column.native
    if native.startswith(_NESTED) or native.endswith("]"):
        return f"CAST(to_json({name}) AS VARCHAR)"
    if native == "TIMESTAMP_NS":
        return _checked_value(
            name, f"CAST({name} AS TIMESTAMP)", f"CAST(CAST({name} AS TIMESTAMP) AS TIMESTAMP_NS) = {name}"
        )
    if kind.kind in _BOUNDS:
        low, high = _BOUNDS[kind.kind]
        value = f"CAST({name} AS TIMESTAMP)" if kind.kind == "timestamp" else name
        return _checked_value(name, value, f"{value} BETWEEN {low} AND {high}")
    if kind.kind in ("text", "json", "uuid"):
        return name if native == "VARCHAR" else f"CAST({name} AS VARCHAR)"
    return f"CAST({name} AS {_DIALECT.type_sql(Column(kind))})" if native in _NEAREST else name


def _checked_value(name: str, value: str, test: str) -> str:
    """Return SQL that raises on values Spark cannot represent: infinity, nanoseconds, the year 10000."""
    failure = f"error(CAST({name} AS VARCHAR) || ' cannot leave DuckDB as a date or timestamp')"
    return f"CASE WHEN {name} IS NULL THEN NULL WHEN {test} THEN {value} ELSE {failure} END"
