"""Which connections a statement names: `connection.schema.table` says where a table is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ematix_flow.config.resolve import known_names, resolve
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.engine.ask import QuerySource
from ematix_flow.foundation.errors import FlowError, MissingTable, SqlError
from ematix_flow.foundation.names import did_you_mean


@dataclass(frozen=True)
class Hosts:
    """The connections a statement may name; `required` when the pipeline lists them, so that every table says its own."""

    connections: Mapping[str, Any]
    required: bool = False

    @classmethod
    def of(cls, spec: PipelineSpec, asked: QuerySource) -> Hosts:
        """Those the pipeline lists; without a list, every connection that has a name here."""
        named = spec.source_connection
        if isinstance(named, (list, tuple)):
            found = [resolve(item).connection for item in named]
            return cls({connection.name: connection for connection in found}, required=len(found) > 1)
        if asked.query.count(".") < 2:  # nothing in it has three parts
            return cls({})
        here = [asked.connection, *(load.connection for load in spec.loads)]
        made = {item.name: item for item in here if not isinstance(item, str) and getattr(item, "name", None)}
        return cls({**dict.fromkeys(known_names()), **made})

    def connection(self, name: str) -> Any:
        """The connection of that name."""
        return self.connections[name] or resolve(name).connection

    def named_by_text(self, query: str) -> list[Any]:
        """Connections whose name and a dot stand in the text: a quick look, before it is parsed."""
        names = [name for name in self.connections if re.search(rf"(?<![\w.]){re.escape(name)}[`\"]?\s*\.", query)]
        found = []
        for name in names:
            with suppress(FlowError):  # an entry that is wrong is told when it is used
                found.append(self.connection(name))
        return found

    def found_in(self, tree: Any) -> list[tuple[Any, str]]:
        """The tables of other systems with the connection each of them names; empty for an ordinary query."""
        tables = list(tables_of(tree))
        known = [table for table in tables if table.parts[0].name in self.connections]
        if not self.required and not any(len(table.parts) > 2 for table in known):
            return []  # two parts are a schema and a table of the source, unless something else says otherwise
        return [(table, table.parts[0].name) for table in known if len(table.parts) > 1]

    def strangers_in(self, tree: Any) -> list[Any]:
        """Tables that name no connection."""
        placed = {id(table) for table, _ in self.found_in(tree)}
        return [table for table in tables_of(tree) if id(table) not in placed]

    def refuse(self, table: Any) -> MissingTable:
        """The error for a table that names no connection."""
        parts = [part.name for part in table.parts]
        name = ".".join(parts)
        return MissingTable(
            f"{name} names no connection, and this statement reads from several",
            hint=f"write connection.schema.table; {did_you_mean(parts[0], self.connections)}",
            table=name,
        )


def tables_of(tree: Any) -> Iterator[Any]:
    """Tables that are no name of a WITH query."""
    from sqlglot import exp

    local = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        parts = table.parts
        if not all(isinstance(part, exp.Identifier) for part in parts):
            continue  # a function that gives rows
        if len(parts) > 1 or table.name.lower() not in local:
            yield table


def parsed(query: str, dialects: Iterable[str]) -> tuple[Any, str] | None:
    """The tree of one query in the first of these dialects that takes it, and which that was."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    for dialect in dialects:
        try:
            trees = sqlglot.parse(query, read=dialect)
        except SqlglotError:
            continue
        if len(trees) == 1 and isinstance(trees[0], exp.Query):
            return trees[0], dialect
    return None


def without_host(query: str, tree: Any, host: str) -> str:
    """The text with the connection's name taken from its tables, and from columns that are written in full."""
    from sqlglot import exp

    edits = [table.parts[:2] for table in tables_of(tree) if table.parts[0].name == host and len(table.parts) > 1]
    short = any(len(table.parts) == 2 for table in tables_of(tree))
    for column in tree.find_all(exp.Column):
        parts = column.parts
        if parts[0].name == host and len(parts) > (2 if short else 3):
            edits.append(parts[:2])
    for first, second in sorted(edits, key=lambda pair: int(pair[0].meta["start"]), reverse=True):
        query = query[: int(first.meta["start"])] + query[int(second.meta["start"]) :]
    return query


def require_spark_sql(dialect: str, hosts: Iterable[str]) -> None:
    """A statement over several connections is Spark's to run."""
    if dialect != "spark":
        raise SqlError(
            f"the statement reads from {', '.join(sorted(set(hosts)))}, and is not Spark SQL",
            hint="a statement over several connections is Spark SQL; names are quoted with `backticks`",
        )
