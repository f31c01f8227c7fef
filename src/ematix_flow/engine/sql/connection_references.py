"""Connection references in statements: `connection.schema.table` names the connection of a table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ematix_flow.config.resolve import known_names, resolve
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.engine.sql.sources import QuerySource
from ematix_flow.foundation.errors import FlowError, MissingTable, SqlError
from ematix_flow.foundation.lazy_imports import exp, sqlglot
from ematix_flow.foundation.names import did_you_mean


@dataclass(frozen=True)
class ConnectionReferences:
    """The connections a statement may name; `required` if the pipeline lists several, so that every table names one."""

    connections: Mapping[str, Any]
    required: bool = False

    @classmethod
    def of(cls, spec: PipelineSpec, query_source: QuerySource) -> ConnectionReferences:
        """Return the connections that the pipeline lists; without a list, all configured and declared ones."""
        named = spec.source_connection
        if isinstance(named, (list, tuple)):
            connections = [resolve(item).connection for item in named]
            return cls({connection.name: connection for connection in connections}, required=len(connections) > 1)
        if query_source.query.count(".") < 2:  # it contains no three-part name
            return cls({})
        here = [query_source.connection, *(load.connection for load in spec.loads)]
        by_name = {item.name: item for item in here if not isinstance(item, str) and getattr(item, "name", None)}
        return cls({**dict.fromkeys(known_names()), **by_name})

    def connection(self, name: str) -> Any:
        """Return the connection of this name."""
        return self.connections[name] or resolve(name).connection

    def mentioned_in(self, query: str) -> list[Any]:
        """Return the connections whose name, followed by a dot, occurs in the text: a cheap test before parsing."""
        names = [name for name in self.connections if re.search(rf"(?<![\w.]){re.escape(name)}[`\"]?\s*\.", query)]
        mentioned = []
        for name in names:
            with suppress(FlowError):  # an invalid entry raises when it is used
                mentioned.append(self.connection(name))
        return mentioned

    def connections_in(self, tree: Any) -> list[tuple[Any, str]]:
        """Return the tables that name a connection, with its name; empty for an ordinary query."""
        tables = list(tables_of(tree))
        known = [table for table in tables if table.parts[0].name in self.connections]
        if not self.required and not any(len(table.parts) > 2 for table in known):
            return []  # two parts are a schema and a table of the source, unless another table has three
        return [(table, table.parts[0].name) for table in known if len(table.parts) > 1]

    def unqualified_in(self, tree: Any) -> list[Any]:
        """Return the tables that name no connection."""
        placed = {id(table) for table, _ in self.connections_in(tree)}
        return [table for table in tables_of(tree) if id(table) not in placed]

    def unqualified_error(self, table: Any) -> MissingTable:
        """Return the error for a table that names no connection."""
        parts = [part.name for part in table.parts]
        name = ".".join(parts)
        return MissingTable(
            f"{name} names no connection, and this statement reads from several",
            hint=f"write connection.schema.table; {did_you_mean(parts[0], self.connections)}",
            table=name,
        )


def tables_of(tree: Any) -> Iterator[Any]:
    """Yield the tables that are not names of WITH queries."""
    local = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        parts = table.parts
        if not all(isinstance(part, exp.Identifier) for part in parts):
            continue  # a table function
        if len(parts) > 1 or table.name.lower() not in local:
            yield table


def parse_query(query: str, dialects: Iterable[str]) -> tuple[Any, str] | None:
    """Return the parsed query and the first of these dialects that parses it; None if there is none."""
    for dialect in dialects:
        try:
            trees = sqlglot.parse(query, read=dialect)
        except sqlglot.errors.SqlglotError:
            continue
        if len(trees) == 1 and isinstance(trees[0], exp.Query):
            return trees[0], dialect
    return None


def without_connection_name(query: str, tree: Any, connection: str) -> str:
    """Return the text without the connection's name before its tables and before fully qualified columns."""
    edits = [table.parts[:2] for table in tables_of(tree) if table.parts[0].name == connection and len(table.parts) > 1]
    short = any(len(table.parts) == 2 for table in tables_of(tree))
    for column in tree.find_all(exp.Column):
        parts = column.parts
        if parts[0].name == connection and len(parts) > (2 if short else 3):
            edits.append(parts[:2])
    for first, second in sorted(edits, key=lambda pair: int(pair[0].meta["start"]), reverse=True):
        query = query[: int(first.meta["start"])] + query[int(second.meta["start"]) :]
    return query


def require_spark_sql(dialect: str, connections: Iterable[str]) -> None:
    """Raise SqlError unless a statement over several connections is Spark SQL, because Spark runs it."""
    if dialect != "spark":
        raise SqlError(
            f"the statement reads from {', '.join(sorted(set(connections)))}, and is not Spark SQL",
            hint="a statement over several connections is Spark SQL; names are quoted with `backticks`",
        )
