"""Spark SQL over a lake: every table of a query is located below the connection's path and becomes a view."""

from __future__ import annotations

import itertools
import uuid
from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.backend import SparkSqlSource
from ematix_flow.contract.read import ReadPlan, SourceColumn
from ematix_flow.dataplane.spark_session import active_session, broadcast_bytes, exact_settings, reorders_joins
from ematix_flow.dataplane.spark_types import carrier_expressions, source_columns
from ematix_flow.families.lake.columns import since, watermark_literal
from ematix_flow.families.lake.errors import translated_errors
from ematix_flow.foundation.errors import FlowError, MissingTable, PlanError, SqlError
from ematix_flow.foundation.lazy_imports import exp, sqlglot
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.sql.joins.file_statistics import TableFiles
from ematix_flow.sql.joins.reorder import Reordered, reorder_joins
from ematix_flow.sql.linear_query import parse_linear, without_semicolon
from ematix_flow.sql.spark_text import quote
from ematix_flow.storage.paths import LakePath, LakeRoot, holds_few_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_MOST_NAMES = 200


class LakeSource(SparkSqlSource):
    """Queries of one lake; a backend implements how a table is recognised and opened."""

    what = "a table"

    def __init__(self, name: str, lake_root: LakeRoot) -> None:
        self._name = name
        self._place = lake_root

    @abstractmethod
    def find(self, path: LakePath) -> LakePath | None:
        """Return the folder or file of the table at this path, None when there is none."""

    @abstractmethod
    def open(self, path: LakePath) -> DataFrame:
        """Return a table that `find` located, as a frame."""

    def files(self, path: LakePath) -> TableFiles | None:
        """Return the Parquet files with the table's statistics, None where there are none on this machine."""
        return None

    def rows(self, path: LakePath) -> int | None:
        """Return the number of rows of the table, None when that requires reading it."""
        return None

    def plan(self, query: str, *, parallelism: int) -> ReadPlan:
        """Describe the result; the splits are left to Spark."""
        query = without_semicolon(query)
        spark = active_session()
        with ExitStack() as open_until, translated_errors("planning the query"), exact_settings(spark):
            columns = source_columns(self._run(query, spark, open_until).schema)
            estimate = self._estimate(query)
            joins = self._ordered(query, spark).reasons
        names = [column.name for column in columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise PlanError(
                f"the query gives more than one column called {', '.join(twice)}", hint="name them apart with AS"
            )
        return ReadPlan(query, columns, parallelism, "Spark cuts the files", estimate, joins=joins)

    def since(self, query: str, column: SourceColumn, value: str) -> str | None:
        """Return the query from a watermark on, None for a column without a known type."""
        return (
            since(without_semicolon(query), column.name, watermark_literal(value, column.type)) if column.type else None
        )

    def read(self, plan: ReadPlan, spark: SparkSession, open_until: ExitStack) -> DataFrame:
        """Return the rows as a lazy frame; its views are dropped when the read ends."""
        with translated_errors("reading the lake"), exact_settings(spark):
            frame = self._run(plan.query, spark, open_until)
            return frame.selectExpr(*carrier_expressions(frame.schema))

    def frame(self, query: str, open_until: ExitStack) -> DataFrame:
        """Return a query's result with Spark's own types, for queries of users."""
        spark = active_session()
        with translated_errors("the query"), exact_settings(spark):
            return self._run(without_semicolon(query), spark, open_until)

    def tables(self) -> list[str]:
        """Return the names of the existing tables."""
        tables = itertools.islice(self._listed(self._place.root, ()), _MOST_NAMES)
        return sorted(".".join(parts) for parts in tables)

    def weighs_little(self, query: str) -> bool:
        """Return whether all tables of a query are small; False if one of them is not found."""
        try:
            return all(
                holds_few_bytes(self.locate(table_name_parts(table)))
                for table in _tables(parse_query(without_semicolon(query)))
            )
        except FlowError:  # reported when the query is planned
            return False

    def locate(self, parts: tuple[str, ...]) -> LakePath:
        """Return the path of a table by its dotted name, which may start with the connection's own name."""
        tried = [parts, parts[1:]] if len(parts) > 1 and parts[0] == self._name else [parts]
        for names in tried:
            safe = all(name and name not in (".", "..") and "/" not in name for name in names)
            table = self.find(self._place.root.joinpath(*names)) if safe else None
            if table is not None:
                return table
        wanted, existing = ".".join(tried[-1]), self.tables()
        raise MissingTable(
            f"{wanted} is not {self.what} of connection {self._name!r} ({self._place.root})",
            hint=did_you_mean(wanted, existing) if existing else "there is none below that path yet",
            table=wanted,
        )

    def _run(self, query: str, spark: SparkSession, open_until: ExitStack) -> DataFrame:
        return self._over(query, spark, open_until, self.open)

    def _over(
        self, query: str, spark: SparkSession, open_until: ExitStack, open_table: Callable[[LakePath], DataFrame]
    ) -> DataFrame:
        """Run the query over views of its tables."""
        views: dict[LakePath, str] = {}

        def view_of(parts: tuple[str, ...]) -> str:
            path = self.locate(parts)
            if path not in views:
                views[path] = f"flow_{uuid.uuid4().hex}"
                open_table(path).createOrReplaceTempView(views[path])
                open_until.callback(spark.catalog.dropTempView, views[path])
            return views[path]

        return spark.sql(replace_tables(self._ordered(query, spark).query, view_of))

    def _ordered(self, query: str, spark: SparkSession) -> Reordered:
        """Return the query with its joins in the cheapest order that the tables' statistics allow to find."""
        if not reorders_joins(spark):
            return Reordered(query)
        return reorder_joins(query, self.files_of, parse=parse_query, broadcast=lambda: broadcast_bytes(spark))

    def files_of(self, table: Any) -> TableFiles | None:
        """Return the files of a table of the tree."""
        return self.files(self.locate(table_name_parts(table)))

    def _estimate(self, query: str) -> int | None:
        """Return the number of rows of a query over one whole table, None for other queries."""
        linear_query = parse_linear(query, "spark")
        if linear_query is None or linear_query.tree.args.get("where"):
            return None
        return self.rows(self.locate(table_name_parts(linear_query.tree.find(exp.Table))))

    def _listed(self, folder: LakePath, names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """Yield the tables at the root and one folder below it."""
        try:
            inside: list[LakePath] = sorted(folder.iterdir(), key=lambda item: item.name)
        except OSError:
            return
        for item in inside:
            if item.name.startswith(("_", ".")) or "=" in item.name:
                continue
            name = item.name if item.is_dir() else item.name.split(".")[0]
            if self.find(folder / name) is not None:
                yield (*names, name)
            if item.is_dir() and not names:
                yield from self._listed(item, (item.name,))


def replace_tables(query: str, name_of: Callable[[tuple[str, ...]], str]) -> str:
    """Return the query with every table replaced by the view `name_of(parts)`; all other text is unchanged."""
    tree = parse_query(query)
    return replace_in_text(query, tree, [(table, quote(name_of(table_name_parts(table)))) for table in _tables(tree)])


def table_name_parts(table: Any) -> tuple[str, ...]:
    """Return the parts of a table's name."""
    return tuple(part.name for part in table.parts)


def replace_in_text(query: str, tree: Any, tables: Iterable[tuple[Any, str]], *, bare: Container[int] = ()) -> str:
    """Return the text with other names for these tables, each with its old name as alias except the `bare` ones."""
    edits: list[tuple[int, int, str]] = []
    for table, name in tables:
        parts = table.parts
        alias = "" if table.alias or id(table) in bare else f" AS {quote(table.name)}"
        edits.append((*_span(parts[0], parts[-1]), f"{name}{alias}"))
    for column in tree.find_all(exp.Column):
        if column.args.get("db"):  # schema.table.column: the view has only the table's name
            first = column.args.get("catalog") or column.args["db"]
            edits.append((*_span(first, column.args["table"]), quote(column.table)))
    for start, end, new in sorted(edits, reverse=True):
        query = query[:start] + new + query[end:]
    return query


def parse_query(query: str) -> Any:
    """Return the tree of a query; raise `SqlError` for another statement."""
    tree = parse_statement(query)
    if not isinstance(tree, exp.Query):
        raise SqlError("a source takes one query", hint="write one SELECT")
    return tree


def parse_statement(query: str) -> Any:
    """Return the tree of one statement of Spark SQL."""
    try:
        trees = sqlglot.parse(query, read="spark")
    except sqlglot.errors.ParseError as exc:
        first = exc.errors[0] if exc.errors else {}
        where = (
            f" (line {first.get('line')}, column {first.get('col')}, near {first.get('highlight')!r})" if first else ""
        )
        raise SqlError(f"the query is not Spark SQL: {first.get('description') or exc}{where}",
                       hint="lakes and files are queried in Spark SQL") from exc  # fmt: skip
    except sqlglot.errors.SqlglotError as exc:
        raise SqlError(f"the query is not Spark SQL: {exc}", hint="lakes and files are queried in Spark SQL") from exc
    if len(trees) != 1 or trees[0] is None:
        raise SqlError(f"one statement is expected, not {len(trees)}", hint="write them one by one")
    return trees[0]


def _tables(tree: Any) -> list[Any]:
    """Return the tables that are not names of a WITH query in scope."""
    from sqlglot.optimizer.scope import traverse_scope

    tables: dict[int, Any] = {}
    for scope in traverse_scope(tree):
        for source in scope.sources.values():
            if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
                tables[id(source)] = source
    return list(tables.values())


def _span(first: Any, last: Any) -> tuple[int, int]:
    return int(first.meta["start"]), int(last.meta["end"]) + 1
