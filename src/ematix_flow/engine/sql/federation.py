"""Statements over several connections: every table becomes a view of the rows that its own system returns."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.catalog import backend_for, batch_refusal
from ematix_flow.contract.backend import Backend, BatchSource
from ematix_flow.contract.read import ReadPlan, SourceColumn
from ematix_flow.dataplane.spark_session import broadcast_bytes, exact_settings, reorders_joins
from ematix_flow.dataplane.spark_types import carrier_expressions, source_columns
from ematix_flow.dataplane.type_mapping import spark_schema
from ematix_flow.declare.types import ColumnType, Numeric, Text
from ematix_flow.engine.sql import connection_references as naming
from ematix_flow.engine.sql.connection_references import ConnectionReferences
from ematix_flow.engine.sql.pushdown import pushdown_queries
from ematix_flow.engine.sql.sources import QuerySource
from ematix_flow.families.lake.columns import since, watermark_literal
from ematix_flow.families.lake.errors import translate, translated_errors
from ematix_flow.families.lake.source import LakeSource, parse_query, replace_in_text
from ematix_flow.foundation.errors import FlowError, MissingColumn, PlanError
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.sql.expressions import quote
from ematix_flow.sql.joins.file_statistics import TableFiles
from ematix_flow.sql.joins.reorder import Reordered, reorder_joins
from ematix_flow.sql.linear_query import without_semicolon

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class FederatedTable:
    """One table of the statement: its view, and the read that fills the view."""

    view: str
    source: BatchSource
    plan: ReadPlan


@dataclass(frozen=True)
class FederatedPlan(ReadPlan):
    """The plan, with its tables and the statement over their views."""

    parts: tuple[FederatedTable, ...] = ()
    statement: str = ""


@dataclass(frozen=True)
class _DescribedTable:
    """A table as described by its system."""

    backend: Backend
    source: BatchSource
    relation: str
    plan: ReadPlan


class FederatedSource:
    """A source for statements whose tables are on several connections."""

    def __init__(self, references: ConnectionReferences, spark: Callable[[], SparkSession]) -> None:
        self._references = references
        self._spark = spark
        self._known: dict[tuple[str, str], _DescribedTable] = {}

    def plan(self, query: str, *, parallelism: int) -> FederatedPlan:
        """Return the plan, with result columns derived from the tables' descriptions; no row is read."""
        query = without_semicolon(query)
        tree = parse_query(query)
        for stranger in self._references.unqualified_in(tree):
            raise self._references.unqualified_error(stranger)
        tables = self._references.connections_in(tree)
        ordered = self._ordered(query)
        if ordered.reasons:
            tree = parse_query(ordered.query)
            tables = self._references.connections_in(tree)
        described = [self._described(table, name, parallelism) for table, name in tables]
        views = [f"flow_{uuid.uuid4().hex}" for _ in tables]
        named = [(table, quote(view, "spark")) for (table, _), view in zip(tables, views, strict=True)]
        statement = replace_in_text(ordered.query, tree, named)
        columns = self._columns(statement, list(zip(views, described, strict=True)))
        parts = tuple(
            FederatedTable(view, description.source, _pushdown_queries(tree, table, description, parallelism))
            for view, description, (table, _) in zip(views, described, tables, strict=True)
        )
        systems = ", ".join(dict.fromkeys(description.backend.title for description in described))
        reads = sum(part.plan.splits for part in parts)
        consistent = len(parts) == 1 and parts[0].plan.consistent
        return FederatedPlan(
            query,
            columns,
            reads,
            f"{len(parts)} tables of {systems}",
            None,
            consistent,
            parts,
            statement,
            joins=ordered.reasons,
        )

    def since(self, query: str, column: SourceColumn, value: str) -> str | None:
        """Return the statement restricted to rows from a watermark on; None for a column without a declared type."""
        return (
            since(without_semicolon(query), column.name, watermark_literal(value, column.type)) if column.type else None
        )

    def read(self, plan: ReadPlan, spark: SparkSession, open_until: ExitStack) -> DataFrame:
        """Return the statement's rows: every table is read by its own system's reader, Spark joins them."""
        own = plan if isinstance(plan, FederatedPlan) else self.plan(plan.query, parallelism=plan.splits)
        for part in own.parts:
            _create_view(part.source.read(part.plan, spark, open_until), part.view, open_until)
        with translated_errors("reading the statement"), exact_settings(spark):
            frame = spark.sql(own.statement)
            return frame.selectExpr(*carrier_expressions(frame.schema))

    def _ordered(self, query: str) -> Reordered:
        """Return the statement with joins of lake tables in the cheapest order."""
        return reorder_joins(query, self._files_of, parse=parse_query, broadcast=lambda: broadcast_bytes(self._spark()))

    def _files_of(self, table: Any) -> TableFiles | None:
        """Return the files of a lake table; None for a table of a database."""
        backend = backend_for(self._references.connection(table.parts[0].name))
        if not backend.is_lake or backend.batch_source is None or not reorders_joins(self._spark()):
            return None
        source = backend.batch_source(self._references.connection(table.parts[0].name))
        return source.files_of(table) if isinstance(source, LakeSource) else None

    def _described(self, table: Any, name: str, parallelism: int) -> _DescribedTable:
        connection = self._references.connection(name)
        backend = backend_for(connection)
        relation = ".".join(_written_name(part, backend.dialect) for part in table.parts[1:])
        if (name, relation) not in self._known:
            if backend.batch_source is None:
                raise batch_refusal(backend, reading=True)
            if backend.is_lake:
                self._spark()
            source = backend.batch_source(connection)
            try:
                plan = source.plan(f"SELECT * FROM {relation}", parallelism=parallelism)
            except FlowError as exc:
                exc.facts.setdefault("connection", name)
                raise
            self._known[name, relation] = _DescribedTable(backend, source, relation, plan)
        return self._known[name, relation]

    def _answered(self, statement: str, spark: SparkSession, tables: list[_DescribedTable]) -> tuple[SourceColumn, ...]:
        with translated_errors("planning the statement"):
            try:
                return source_columns(spark.sql(statement).schema)
            except Exception as exc:
                known = translate(exc)
                if not isinstance(known, MissingColumn) or "did you mean" in (known.hint or ""):
                    raise
                names = [column.name for table in tables for column in table.plan.columns]
                known.hint = did_you_mean(str(known.facts.get("column", "")).rpartition(".")[2], names)
                raise known from exc

    def _columns(self, statement: str, tables: list[tuple[str, _DescribedTable]]) -> tuple[SourceColumn, ...]:
        """Return the statement's columns, from Spark's analysis over empty tables."""
        spark = self._spark()
        with ExitStack() as open_until, translated_errors("planning the statement"), exact_settings(spark):
            for view, table in tables:
                if table.backend.is_lake:
                    frame = table.source.read(table.plan, spark, open_until)
                else:
                    carriers = [(column.name, _carrier(column)) for column in table.plan.columns]
                    frame = spark.createDataFrame([], spark_schema(carriers))
                _create_view(frame, view, open_until)
            columns = self._answered(statement, spark, [table for _, table in tables])
        names = [column.name for column in columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise PlanError(
                f"the query gives more than one column called {', '.join(twice)}", hint="name them apart with AS"
            )
        return columns


def locate_tables(query_source: QuerySource, references: ConnectionReferences) -> tuple[QuerySource, list[Any]]:
    """Return the query on the connection that runs it, and the connections it joins if there are several."""
    candidates = references.mentioned_in(query_source.query)
    if not candidates and not references.required:
        return query_source, []
    own = backend_for(query_source.connection).dialect
    parsed_query = naming.parse_query(
        query_source.query, ("spark", own, *(backend_for(item).dialect for item in candidates))
    )
    if parsed_query is None:
        if references.required:
            parse_query(without_semicolon(query_source.query))  # raises the syntax error
        return query_source, []
    tree, dialect = parsed_query
    named = list(dict.fromkeys(name for _, name in references.connections_in(tree)))
    strangers = references.unqualified_in(tree)
    ordinary = not named or (strangers and named == [query_source.connection.name])
    if ordinary and not (references.required and strangers):
        return query_source, []
    if strangers:
        raise references.unqualified_error(strangers[0])
    if len(named) == 1:
        return QuerySource(
            references.connection(named[0]), naming.without_connection_name(query_source.query, tree, named[0])
        ), []
    naming.require_spark_sql(dialect, named)
    return query_source, [references.connection(name) for name in named]


def _create_view(frame: DataFrame, view: str, open_until: ExitStack) -> None:
    frame.createOrReplaceTempView(view)
    open_until.callback(frame.sparkSession.catalog.dropTempView, view)


def _written_name(part: Any, dialect: str) -> str:
    """Return a name as its own system resolves it: PostgreSQL folds unquoted names to lower case."""
    folds = dialect == "postgres" and not part.args.get("quoted")
    return quote(part.name.lower() if folds else part.name, dialect)


def _carrier(column: SourceColumn) -> ColumnType:
    return column.type or (Numeric(38, 18) if column.native == "numeric" else Text())


def _pushdown_queries(tree: Any, table: Any, described: _DescribedTable, parallelism: int) -> ReadPlan:
    """Return the read of one table; lakes need no pushdown here, because Spark itself prunes columns and rows."""
    if described.backend.is_lake:
        return described.plan
    whole, restricted = pushdown_queries(
        tree, table, described.plan.columns, described.relation, described.backend.dialect
    )
    if restricted != whole:
        try:
            return described.source.plan(restricted, parallelism=parallelism)
        except FlowError:  # this database rejects the condition, which Spark applies anyway
            pass
    return described.source.plan(whole, parallelism=parallelism)
