"""Pushdown into the tables of a federated statement: unused columns, and rows that conditions exclude.

Spark still applies every condition itself, so a database may return too many rows, but never too few: collations,
time zones and affinities differ, and only comparisons that cannot lose a row are pushed down.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ematix_flow.contract.read import SourceColumn
from ematix_flow.foundation.lazy_imports import exp
from ematix_flow.sql.expressions import quote

_INTEGERS = ("small_int", "integer", "big_int")
_TEXTS = ("text", "string")
_INTEGER = re.compile(r"-?\d{1,18}")
_NUMBER = re.compile(r"-?\d{1,30}(?:\.\d{1,30})?")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}(?: \d{2}:\d{2}:\d{2}(?:\.\d{1,6})?)?")
_CAST_TO = {"date": ("date",), "timestamp": ("timestamp", "timestamptz"), "timestamp_tz": ("timestamp", "timestamptz")}
_SIGNS = {"EQ": "=", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def pushdown_queries(
    tree: Any, table: Any, columns: Sequence[SourceColumn], relation: str, dialect: str
) -> tuple[str, str]:
    """Return two queries of the table: with the columns the statement needs, and also with its pushable conditions."""
    names = ", ".join(quote(name, dialect) for name in needed_columns(tree, table, [item.name for item in columns]))
    query = f"SELECT {names} FROM {relation}"
    conditions = list(_conditions(table, {item.name.lower(): item for item in columns}, dialect))
    return query, f"{query} WHERE {' AND '.join(conditions)}" if conditions else query


def needed_columns(tree: Any, table: Any, available: Sequence[str]) -> list[str]:
    """Return the columns of this table that the statement mentions; all for SELECT * and NATURAL joins."""
    select = _select_of(table)
    called = {"", table.alias_or_name.lower(), table.name.lower()}
    if select is None or table.args.get("pivots") or any(item.args.get("method") for item in _joins(select)):
        return list(available)
    if any(isinstance(item, exp.Star) for item in select.expressions):
        return list(available)
    mentioned = {item.name.lower() for join in tree.find_all(exp.Join) for item in join.args.get("using") or ()}
    for column in tree.find_all(exp.Column):
        if column.table.lower() not in called:
            continue
        if isinstance(column.this, exp.Star):
            return list(available)
        mentioned.add(column.name.lower())
    return [name for name in available if name.lower() in mentioned] or list(available[:1])


def _select_of(table: Any) -> Any:
    """Return the SELECT whose FROM or JOIN contains the table itself, else None."""
    holder = table.parent
    above = holder.parent if isinstance(holder, (exp.From, exp.Join)) else None
    return above if isinstance(above, exp.Select) else None


def _joins(select: Any) -> list[Any]:
    return list(select.args.get("joins") or ())


def _conditions(table: Any, columns: dict[str, SourceColumn], dialect: str) -> Iterator[str]:
    """Yield conditions of the table's own WHERE that reject rows with NULL: they are valid before any kind of join."""
    select = _select_of(table)
    if select is None or select.args.get("where") is None:
        return
    if any(select.args.get(part) or table.args.get(part) for part in ("sample", "pivots", "laterals")):
        return
    called = {table.alias_or_name.lower()} | (set() if _joins(select) else {""})
    for condition in _conjuncts(select.args["where"].this):
        for column, sign, values in _comparison(condition):
            known = columns.get(column.name.lower()) if column.table.lower() in called else None
            if known is None or len(column.parts) > 2:
                continue
            written = [_literal(value, known, sign, dialect) for value in values]
            if written and None not in written:
                right = f"({', '.join(str(item) for item in written)})" if sign == "IN" else written[0]
                yield f"{quote(known.name, dialect)} {sign} {right}"


def _conjuncts(condition: Any) -> Iterator[Any]:
    if isinstance(condition, (exp.And, exp.Paren)):
        for side in (condition.this, condition.args.get("expression")):
            if side is not None:
                yield from _conjuncts(side)
    else:
        yield condition


def _comparison(node: Any) -> Iterator[tuple[Any, str, list[Any]]]:
    """Yield column, sign and literals of a comparison; two for a BETWEEN, none for anything else."""
    sign = _SIGNS.get(type(node).__name__)
    if sign and isinstance(node.this, exp.Column):
        yield node.this, sign, [node.expression]
    elif sign and isinstance(node.expression, exp.Column):
        yield node.expression, _TURNED[sign], [node.this]
    elif isinstance(node, exp.In) and isinstance(node.this, exp.Column):
        yield node.this, "IN", list(node.expressions)
    elif isinstance(node, exp.Between) and isinstance(node.this, exp.Column) and not node.args.get("symmetric"):
        yield node.this, ">=", [node.args["low"]]
        yield node.this, "<=", [node.args["high"]]


def _literal(node: Any, column: SourceColumn, sign: str, dialect: str) -> str | None:
    """Return the value in the database's SQL, None where its comparison might differ from Spark's."""
    kind = column.type.kind if column.type else ""
    if kind in (*_INTEGERS, "numeric"):
        return _number(node, kind, dialect)
    if dialect == "sqlite":  # SQLite stores everything else as text in its original form
        return None
    value = node.this if isinstance(node, exp.Cast) and kind in _CAST_TO and node.to.is_type(*_CAST_TO[kind]) else node
    if not isinstance(value, exp.Literal) or not value.is_string:
        return None
    text = str(value.name)
    if kind == "date":
        return f"DATE '{text}'" if _DAY.fullmatch(text) else None
    if kind in ("timestamp", "timestamp_tz"):
        return _moment(text, kind, dialect) if _MOMENT.fullmatch(text) else None
    safe = text.isprintable() and "\\" not in text
    if kind in _TEXTS and safe and sign in ("=", "IN"):  # a case-insensitive collation only returns more rows
        return "'" + text.replace("'", "''") + "'"
    return None


def _number(node: Any, kind: str, dialect: str) -> str | None:
    inner = node.this if isinstance(node, exp.Neg) else node
    if not isinstance(inner, exp.Literal) or inner.is_string or (kind == "numeric" and dialect == "sqlite"):
        return None
    text = f"-{inner.name}" if inner is not node else str(inner.name)
    return text if (_NUMBER if kind == "numeric" else _INTEGER).fullmatch(text) else None


def _moment(text: str, kind: str, dialect: str) -> str:
    """Return a timestamp literal in UTC, the zone of every session; MySQL literals have no zone."""
    whole = text if " " in text else f"{text} 00:00:00"
    if kind == "timestamp" or dialect == "mysql":
        return f"TIMESTAMP '{whole}'"
    return f"TIMESTAMPTZ '{whole}+00:00'"
