"""Whole statements of other dialects in Spark SQL; what would mean something else is rewritten, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.foundation.errors import SqlError

if TYPE_CHECKING:
    from sqlglot import exp

READ_AS = {"spark": "spark", "duckdb": "duckdb", "postgres": "postgres", "datafusion": "postgres"}
"""The words of sqlglot's in which each dialect is read."""
_WHOLE_DIVISION = ("postgres", "datafusion")
_DATAFUSION = {
    "make_array": "array", "array_has": "array_contains", "array_element": "element_at", "array_concat": "concat",
    "arrow_typeof": "typeof", "to_timestamp_seconds": "timestamp_seconds", "to_timestamp_millis": "timestamp_millis",
    "to_timestamp_micros": "timestamp_micros", "array_slice": "slice", "array_distinct": "array_distinct",
}  # fmt: skip
_ARROW_TYPES = {
    "int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT", "float32": "FLOAT", "float64": "DOUBLE",
    "utf8": "STRING", "boolean": "BOOLEAN", "binary": "BINARY", "date32": "DATE",
}  # fmt: skip


def to_spark(statement: str, dialect: str, *, whole: Mapping[str, str] | None = None) -> str:
    """A query of a dialect in Spark SQL; `whole` are columns of whole numbers with their types in Spark.

    >>> to_spark('SELECT "a"::int / 2 AS half FROM source', "postgres")
    'SELECT CAST(`a` AS INT) DIV 2 AS half FROM source'
    """
    if dialect == "spark":
        return statement
    from sqlglot import ErrorLevel
    from sqlglot.errors import SqlglotError

    tree = _parsed(statement, dialect)
    if dialect in _WHOLE_DIVISION:
        _cut_quotients(tree, _Whole(whole or {}, sums_grow=dialect == "postgres"))
    if dialect == "datafusion":
        tree = tree.transform(_from_datafusion)
    try:
        return str(tree.sql(dialect="spark", comments=False, unsupported_level=ErrorLevel.RAISE))
    except SqlglotError as exc:
        raise SqlError(
            f"this SQL of {dialect} has no twin in Spark SQL: {str(exc).splitlines()[0]}", hint="write it in Spark SQL"
        ) from exc


def _parsed(statement: str, dialect: str) -> exp.Expr:
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import ParseError, SqlglotError

    try:
        trees = sqlglot.parse(statement, read=READ_AS[dialect])
    except ParseError as exc:
        first = exc.errors[0] if exc.errors else {}
        place = f" (line {first.get('line')}, column {first.get('col')})" if first else ""
        raise SqlError(f"the SQL is not that of {dialect}: {first.get('description') or exc}{place}",
                       hint="look at that place") from exc  # fmt: skip
    except SqlglotError as exc:
        raise SqlError(f"the SQL is not that of {dialect}: {exc}", hint="look for an open quote") from exc
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise SqlError("one query is expected", hint="write one SELECT")
    return trees[0]


def _cut_quotients(tree: exp.Expr, whole: _Whole) -> None:
    """A quotient of whole numbers is a whole number there, and a fraction in Spark."""
    from sqlglot import exp

    for node in reversed(list(tree.find_all(exp.Div))):
        if whole.is_whole(node.left) and whole.is_whole(node.right):
            node.replace(exp.IntDiv(this=node.left, expression=node.right))


@dataclass(frozen=True)
class _Whole:
    """Knows which expressions are whole numbers."""

    columns: Mapping[str, str]
    sums_grow: bool
    """Whether the sum of large whole numbers is a decimal."""

    def is_whole(self, node: Any) -> bool:
        from sqlglot import exp

        if isinstance(node, exp.Literal):
            return bool(node.is_int)
        if isinstance(node, exp.Column):
            return node.name.lower() in self.columns
        if isinstance(node, (exp.Count, exp.Length)):
            return True
        if isinstance(node, exp.Cast):
            return bool(node.to.is_type(*exp.DataType.INTEGER_TYPES))
        if isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.IntDiv)):
            return self.is_whole(node.left) and self.is_whole(node.right)
        if isinstance(node, exp.Sum):
            return self.is_whole(node.this) and not (self.sums_grow and self._is_large(node.this))
        return isinstance(node, (exp.Paren, exp.Neg, exp.Abs, exp.Min, exp.Max)) and self.is_whole(node.this)

    def _is_large(self, node: Any) -> bool:
        from sqlglot import exp

        if isinstance(node, exp.Cast):
            return bool(node.to.is_type(exp.DataType.Type.BIGINT))
        large = [column for column in node.find_all(exp.Column) if self.columns.get(column.name.lower()) == "bigint"]
        return bool(large) or node.find(exp.Count) is not None


def _from_datafusion(node: exp.Expr) -> exp.Expr:
    from sqlglot import exp

    if not isinstance(node, exp.Anonymous):
        return node
    name = str(node.this).lower()
    if name == "arrow_cast" and len(node.expressions) == 2:
        wanted = _ARROW_TYPES.get(node.expressions[1].name.lower())
        if wanted is None:
            raise SqlError(
                f"arrow_cast to {node.expressions[1].name} has no twin in Spark SQL", hint="write CAST(… AS …)"
            )
        return exp.cast(node.expressions[0], wanted, dialect="spark")
    if name in _DATAFUSION:
        return exp.Anonymous(this=_DATAFUSION[name], expressions=node.expressions)
    return node
