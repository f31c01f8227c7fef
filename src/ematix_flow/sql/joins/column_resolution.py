"""Resolves the relations to which each condition of a scope refers; rejects conditions that may fail for a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ematix_flow.foundation.lazy_imports import exp
from ematix_flow.sql.joins import table_statistics
from ematix_flow.sql.joins.predicate_evaluation import CannotEstimate
from ematix_flow.sql.joins.scopes import JoinScope
from ematix_flow.sql.joins.table_statistics import ColumnStats, TableStats

_COMPARED = ("EQ", "NEQ", "LT", "LTE", "GT", "GTE", "NullSafeEQ")
_TIMES = (table_statistics.DATE, table_statistics.TIMESTAMP)
_ANY, _CONSTANT_TEXT, _SUBQUERY = "any", "constant text", "subquery"


@dataclass(frozen=True)
class ResolvedCondition:
    """A condition, and the numbers of the relations to which it refers."""

    node: Any
    relations: frozenset[int]
    is_opaque: bool
    """Whether it depends on more than these relations, so that nothing is estimated from it."""
    holds_query: bool = False


class ColumnResolver:
    """The resolver of a scope's columns to their relations, by the columns that the tables have."""

    def __init__(self, scope: JoinScope, tables: Sequence[TableStats]) -> None:
        self._scope = scope
        self._tables = tables
        self._aliases = {relation.alias_or_name.lower(): number for number, relation in enumerate(scope.relations)}
        self._names = [_names(table) for table in tables]

    def column(self, column: Any) -> int | None:
        """Return the relation of a column, None for one of an enclosing query; raise CannotEstimate if it is ambiguous."""
        if column.args.get("db"):
            raise CannotEstimate("a name of three parts")
        name, table = column.name.lower(), column.table.lower()
        if table:
            numbers = [self._aliases[table]] if table in self._aliases else []
            if numbers and name not in self._names[numbers[0]]:
                raise CannotEstimate(f"{table}.{name}")
            if not numbers and any(table in names for names in self._names):
                raise CannotEstimate("a field of a column")
        else:
            numbers = [number for number, names in enumerate(self._names) if name in names]
        if len(numbers) > 1 or (not numbers and not self._scope.is_nested):
            raise CannotEstimate(name)
        return numbers[0] if numbers else None

    @property
    def tables(self) -> Sequence[TableStats]:
        """Return the statistics of each relation."""
        return self._tables

    def relations_of(self, node: Any) -> frozenset[int]:
        """Return the relations to which an expression refers."""
        relations = {self.column(column) for column in columns_outside_queries(node)}
        return frozenset(number for number in relations if number is not None)

    def stats_of(self, column: Any) -> ColumnStats:
        """Return the statistics of a column of this scope; raise CannotEstimate for a column of an enclosing query."""
        number = self.column(column)
        if number is None:
            raise CannotEstimate(column.name)
        return self._tables[number].columns[self._names[number][column.name.lower()]]

    def columns_needed(self) -> list[set[str]]:
        """Return the columns of each relation that occur in conditions, in the tables' spelling."""
        needed: list[set[str]] = [set() for _ in self._tables]
        for written in self._scope.conditions:
            for column in columns_outside_queries(written.node):
                number = self.column(column)
                if number is not None:
                    needed[number].add(self._names[number][column.name.lower()])
        return needed

    def conditions(self) -> list[ResolvedCondition]:
        """Return every condition with its relations; raise CannotEstimate if one of them may fail."""
        conditions: list[ResolvedCondition] = []
        for written in self._scope.conditions:
            numbers = {self.column(column) for column in columns_outside_queries(written.node)}
            about = frozenset(number for number in numbers if number is not None)
            if about and max(about) >= written.sees:
                raise CannotEstimate("ON is about a relation that follows")
            self._check(written.node)
            holds_query = _holds_a_query(written.node)
            conditions.append(ResolvedCondition(written.node, about, None in numbers or holds_query, holds_query))
        return conditions

    def kind(self, column: Any) -> str:
        """Return the kind of a column's values; raise CannotEstimate where it is unknown."""
        number = self.column(column)
        if number is None:
            return _ANY
        name = self._names[number][column.name.lower()]
        kind = self._tables[number].kinds[name]
        if kind == table_statistics.OTHER:
            raise CannotEstimate(name)
        return kind

    def columns_used(self) -> list[set[str]]:
        """Return the columns of each relation that the SELECT uses anywhere."""
        used: list[set[str]] = [set() for _ in self._tables]
        for column in self._scope.select.find_all(exp.Column):
            with suppress(CannotEstimate):
                number = self.column(column)
                if number is not None:
                    used[number].add(self._names[number].get(column.name.lower(), ""))
        return used

    def _check(self, node: Any) -> None:
        """Raise CannotEstimate for a condition that may fail for a row: the join order decides which rows it is applied to."""
        name = type(node).__name__
        if isinstance(node, (exp.Paren, exp.Not)):
            self._check(node.this)
        elif isinstance(node, (exp.And, exp.Or)):
            self._check(node.this)
            self._check(node.expression)
        elif name in _COMPARED or (isinstance(node, exp.Like) and node.expression.is_string):
            self._comparable(node.this, node.expression)
        elif isinstance(node, exp.Between):
            self._comparable(node.this, node.args["low"], node.args["high"])
        elif isinstance(node, exp.In) and not node.args.get("unnest") and not node.args.get("field"):
            self._comparable(node.this, *([node.args["query"]] if node.args.get("query") else node.expressions))
        elif isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            self._value(node.this)
        elif not isinstance(node, (exp.Exists, exp.Boolean)) and self._value(node) != table_statistics.BOOLEAN:
            raise CannotEstimate(name)

    def _comparable(self, *values: Any) -> None:
        """Raise CannotEstimate if a value would be cast for the comparison in a way that may fail."""
        # A constant is cast once, when the statement is planned; outer columns are compared above all joins of this
        # scope.
        kinds = {self._value(value) for value in values} - {_ANY, _CONSTANT_TEXT}
        if _SUBQUERY in kinds and table_statistics.TEXT in kinds:
            raise CannotEstimate("a text compared with a query")
        kinds.discard(_SUBQUERY)
        if len(kinds) > 1 and not kinds <= set(table_statistics.NUMBERS) and not kinds <= set(_TIMES):
            raise CannotEstimate(" and ".join(sorted(kinds)))

    def _value(self, node: Any) -> str:
        """Return the kind of a value that can be computed for every row without an error."""
        if isinstance(node, exp.Paren):
            return self._value(node.this)
        if isinstance(node, exp.Column):
            return self.kind(node)
        if isinstance(node, (exp.Subquery, exp.Select)):
            return _SUBQUERY
        if isinstance(node, (exp.Substring, exp.Lower, exp.Upper)):
            if self._value(node.this) not in (table_statistics.TEXT, _CONSTANT_TEXT):
                raise CannotEstimate(type(node).__name__)
            if any(column is not node.this for column in columns_outside_queries(node)):
                raise CannotEstimate(type(node).__name__)
            return table_statistics.TEXT
        if next(iter(columns_outside_queries(node)), None) is not None or _holds_a_query(node):
            raise CannotEstimate(type(node).__name__)
        return _constant(node)


def _constant(node: Any) -> str:
    """Return the kind of an expression without columns, which is computed when the statement is planned."""
    if isinstance(node, exp.Literal):
        return _CONSTANT_TEXT if node.is_string else table_statistics.INTEGER
    if isinstance(node, (exp.Neg, exp.Paren)):
        return _constant(node.this)
    if isinstance(node, exp.Boolean):
        return table_statistics.BOOLEAN
    if (
        isinstance(node, exp.Cast)
        and isinstance(node.this, exp.Literal)
        and node.to.is_type("date", "timestamp", "timestamptz")
    ):
        return table_statistics.DATE if node.to.is_type("date") else table_statistics.TIMESTAMP
    if isinstance(node, (exp.Add, exp.Sub)):
        kind = _constant(node.this)
        if isinstance(node.expression, exp.Interval) and kind in _TIMES:
            return table_statistics.TIMESTAMP
        if kind in table_statistics.NUMBERS and _constant(node.expression) in table_statistics.NUMBERS:
            return table_statistics.DECIMAL
    raise CannotEstimate(type(node).__name__)


def columns_outside_queries(node: Any) -> list[Any]:
    """Return the columns of an expression outside of its subqueries."""
    return [column for column in node.find_all(exp.Column) if not _is_inside_query(column, node)]


def _is_inside_query(column: Any, top: Any) -> bool:
    inner = column.find_ancestor(exp.Select)
    outer = top.find_ancestor(exp.Select)
    return inner is not outer


def _holds_a_query(node: Any) -> bool:
    return node.find(exp.Query) is not None


def _names(table: TableStats) -> Mapping[str, str]:
    """Return the columns of a table by their lower-case names; raise CannotEstimate where two differ by case only."""
    by_name = {name.lower(): name for name in table.names}
    if len(by_name) < len(table.names) or not by_name:
        raise CannotEstimate("columns that differ by letter case only")
    return by_name
