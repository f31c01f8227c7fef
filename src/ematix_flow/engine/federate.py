"""One statement over several connections: every table it names becomes a view that its own system filters first."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.catalog import backend_for
from ematix_flow.config.resolve import known_names, resolve
from ematix_flow.engine.ask import QuerySource
from ematix_flow.foundation.errors import MissingTable, Unsupported
from ematix_flow.foundation.names import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_numbers = itertools.count(1)


def federated_frame(
    asked: QuerySource, named: Any, spark: Callable[[], SparkSession], open_until: ExitStack
) -> DataFrame | None:
    """The frame of a query whose tables are written connection.schema.table; None for an ordinary query."""
    if asked.query.count(".") < 2:
        return None
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    wanted = set(named) if isinstance(named, (list, tuple)) else set(known_names())
    try:
        tree = parse_one(asked.query.strip().rstrip(";"), read="spark")
    except SqlglotError:
        return None
    local = {cte.alias for cte in tree.find_all(exp.CTE)}
    tables = [table for table in tree.find_all(exp.Table) if table.name not in local]
    foreign = [table for table in tables if table.catalog in wanted]
    if not foreign:
        return None
    strangers = [table for table in tables if table not in foreign]
    if strangers:
        name = strangers[0].sql(dialect="spark")
        raise MissingTable(
            f"{name} names no connection, and this statement joins several",
            hint=f"write connection.schema.table; {did_you_mean(strangers[0].catalog or name, wanted)}",
        )
    session = spark()
    for table in foreign:
        _replace(tree, table, session, open_until)
    return session.sql(tree.sql(dialect="spark"))


def _replace(tree: Any, table: Any, spark: SparkSession, open_until: ExitStack) -> None:
    """Put a view in the table's place; the view reads only the columns the statement needs."""
    from sqlglot import exp

    connection = resolve(table.catalog).connection
    backend = backend_for(connection)
    if backend.batch_source is None:
        raise Unsupported(f"{backend.title} cannot be read by a batch pipeline")
    source = backend.batch_source(connection)
    plan = source.plan(_whole(table, backend.dialect, ["*"]), parallelism=spark_parallelism(spark))
    chosen = _needed(tree, table, [column.name for column in plan.columns])
    if len(chosen) < len(plan.columns):
        plan = source.plan(_whole(table, backend.dialect, chosen), parallelism=spark_parallelism(spark))
    view = f"flow_federated_{next(_numbers)}"
    source.read(plan, spark, open_until).createOrReplaceTempView(view)
    open_until.callback(spark.catalog.dropTempView, view)
    alias = table.alias_or_name
    table.replace(exp.alias_(exp.to_table(view), alias, table=True))


def _whole(table: Any, dialect: str, columns: list[str]) -> str:
    from ematix_flow.expressions import quote

    relation = ".".join(quote(part, dialect) for part in (table.db, table.name) if part)
    chosen = ", ".join(column if column == "*" else quote(column, dialect) for column in columns)
    return f"SELECT {chosen} FROM {relation}"


def _needed(tree: Any, table: Any, available: list[str]) -> list[str]:
    """Columns of this table that the statement mentions; all of them when it says *."""
    from sqlglot import exp

    if tree.find(exp.Star):
        return available
    alias = table.alias_or_name
    mentioned = {column.name.lower() for column in tree.find_all(exp.Column) if column.table in ("", alias, table.name)}
    chosen = [name for name in available if name.lower() in mentioned]
    return chosen or available[:1]


def spark_parallelism(spark: SparkSession) -> int:
    """Tasks that run at once, as far as the session says."""
    return int(str(spark.conf.get("spark.sql.shuffle.partitions", "2")))
