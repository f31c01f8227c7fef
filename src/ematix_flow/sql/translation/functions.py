"""Rewriting of functions whose name or meaning differs in a dialect, independent of their argument types."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ematix_flow.foundation.lazy_imports import exp
from ematix_flow.sql.translation.rewriting import build_sql, truncating_quotient, untranslatable

Rule = Callable[[Any, str], Any]
"""Returns the replacement of a node of a dialect, None to keep the node."""

_POSTGRES_LIKE = ("postgres", "datafusion")
_INFINITE = (
    "CASE WHEN :x > 0 THEN {} WHEN :x = 0 THEN CAST('-Infinity' AS DOUBLE) WHEN :x < 0 THEN CAST('NaN' AS DOUBLE) END"
)
_DOMAIN = "CASE WHEN :x {} 0 THEN RAISE_ERROR('{} of a number that has none') ELSE {} END"


def rewrite_functions(tree: Any, dialect: str) -> Any:
    """Return the tree with the dialect's functions replaced by equivalent Spark SQL."""
    root = exp.Subquery(this=tree)  # so that every node of the tree has a parent
    rules = _rules()
    for node in reversed(list(tree.walk())):
        rule = rules.get(type(node))
        new = rule(node, dialect) if rule is not None else None
        if new is not None:
            node.replace(new)
    return root.this.pop()


def _rules() -> dict[Any, Rule]:
    from ematix_flow.sql.translation.aggregates import aggregate_rules

    return {
        exp.Substring: _substring,
        exp.Left: _end_of_text,
        exp.Right: _end_of_text,
        exp.Concat: _concat,
        exp.RegexpReplace: _regexp_replace,
        exp.Log: _logarithm,
        exp.Ln: _logarithm,
        exp.Sqrt: _square_root,
        exp.Extract: _extract,
        exp.DayOfWeek: lambda node, dialect: build_sql("DAYOFWEEK(:x) - 1", x=node.this),
        exp.DayOfWeekIso: lambda node, dialect: build_sql("WEEKDAY(:x) + 1", x=node.this),
        exp.DateDiff: _date_diff,
        exp.TimeToUnix: lambda node, dialect: build_sql("UNIX_MICROS(CAST(:x AS TIMESTAMP)) / 1000000D", x=node.this),
        exp.UnixToTime: _from_seconds,
        exp.Dayname: lambda node, dialect: build_sql("DATE_FORMAT(:x, 'EEEE')", x=node.this),
        exp.Monthname: lambda node, dialect: build_sql("DATE_FORMAT(:x, 'MMMM')", x=node.this),
        exp.Kurtosis: _unsupported_function("kurtosis", "compute it from sums"),
        exp.Skewness: _unsupported_function("skewness", "compute it from sums"),
        exp.ArrayPosition: lambda node, dialect: build_sql("NULLIF(ARRAY_POSITION(:x, :y), 0)", x=node.this, y=node.expression),
        exp.ArraySize: _array_length,
        exp.Format: _unsupported_function("format", "write printf(…), or build the text with ||"),
        exp.IntDiv: lambda node, dialect: truncating_quotient(node) if dialect == "duckdb" else None,
        exp.ArraySlice: lambda node, dialect: _slice(node.this, node.args.get("start"), node.args.get("end")),
        exp.TimeToStr: _pattern,
        exp.StrToTime: _pattern,
        exp.StrToDate: _pattern,
        exp.LowerHex: lambda node, dialect: build_sql("LOWER(HEX(:x))", x=node.this),
        exp.Hex: lambda node, dialect: build_sql("LOWER(HEX(:x))", x=node.this) if dialect != "duckdb" else None,
        exp.Literal: _literal,
        exp.Anonymous: _named,
        **aggregate_rules(),
    }  # fmt: skip


def _unsupported_function(name: str, hint: str) -> Rule:
    def rule(node: Any, dialect: str) -> Any:
        raise untranslatable(f"{name} of {dialect} gives something else in Spark SQL", hint)

    return rule


def _is_whole_literal(node: Any, least: int) -> bool:
    return isinstance(node, exp.Literal) and node.is_int and int(node.name) >= least


def _substring(node: Any, dialect: str) -> Any:
    """Rewrite a start below 1: PostgreSQL counts from before the text, Spark takes 0 as 1, negatives from the end."""
    text, start, length = node.this, node.args.get("start"), node.args.get("length")
    if start is None or _is_whole_literal(start, 1):
        return None
    if dialect in _POSTGRES_LIKE:
        if length is None:
            return build_sql("SUBSTRING(:s, GREATEST(:a, 1))", s=text, a=start)
        return build_sql("SUBSTRING(:s, GREATEST(:a, 1), :a + :n - GREATEST(:a, 1))", s=text, a=start, n=length)
    if length is None:
        return None
    return build_sql("SUBSTRING(:s, IF(:a = 0, 1, :a), IF(:a = 0, :n - 1, :n))", s=text, a=start, n=length)


def _end_of_text(node: Any, dialect: str) -> Any:
    """Rewrite a negative count, which means all but that many characters."""
    count = node.expression
    if _is_whole_literal(count, 0):
        return None
    name = "LEFT" if type(node).__name__ == "Left" else "RIGHT"
    return build_sql(f"{name}(:s, IF(:n < 0, GREATEST(LENGTH(:s) + :n, 0), :n))", s=node.this, n=count)


def _concat(node: Any, dialect: str) -> Any:
    """Rewrite CONCAT, which ignores NULL, as CONCAT_WS."""
    return exp.Anonymous(this="CONCAT_WS", expressions=[exp.Literal.string(""), *node.expressions])


def _regexp_replace(node: Any, dialect: str) -> Any:
    flags, new = node.args.get("modifiers"), node.args.get("replacement")
    if flags is None or flags.name != "g":
        raise untranslatable(
            f"regexp_replace of {dialect} replaces the first match only, and takes flags: Spark SQL has neither",
            "pass 'g' as the fourth argument to replace every match",
        )
    if new is None or not new.is_string or set("\\$") & set(new.name):
        raise untranslatable(
            f"the replacement of this regexp_replace may mean something else in Spark SQL than in {dialect}",
            "write it as a text without \\ and $, or the statement in Spark SQL",
        )
    return None


def _logarithm(node: Any, dialect: str) -> Any:
    """Rewrite logarithms: base 10 by default; of invalid numbers an error in PostgreSQL, infinity or NaN elsewhere."""
    base = node.this if node.expression is not None else None
    value = node.expression if base is not None else node.this
    if isinstance(node, exp.Ln):
        value, words = node.this, "LN(:x)"
    elif base is None or base.name == "10":
        words = "LOG10(:x)"
    else:
        words = "LOG(:base, :x)"
    parts = {"x": value} if base is None else {"x": value, "base": base}
    if dialect == "postgres":
        return build_sql(_DOMAIN.format("<=", "logarithm", words), **parts)
    return build_sql(_INFINITE.format(words), **parts)


def _square_root(node: Any, dialect: str) -> Any:
    return build_sql(_DOMAIN.format("<", "square root", "SQRT(:x)"), x=node.this) if dialect == "postgres" else None


def _extract(node: Any, dialect: str) -> Any:
    return _part_of(str(node.this.name), node.expression, dialect)


def _part_of(name: str, value: Any, dialect: str) -> Any:
    """Rewrite date parts: DOW starts at 0 for Sunday, EPOCH has fractions, DuckDB's SECOND has none."""
    part = name.upper()
    if part in ("DOW", "DAYOFWEEK", "WEEKDAY"):
        return build_sql("DAYOFWEEK(:x) - 1", x=value)
    if part in ("ISODOW", "DAYOFWEEKISO"):
        return build_sql("WEEKDAY(:x) + 1", x=value)
    if part == "EPOCH":
        return build_sql("UNIX_MICROS(CAST(:x AS TIMESTAMP)) / 1000000D", x=value)
    if part == "SECOND" and dialect == "duckdb":
        return build_sql("SECOND(:x)", x=value)
    return None


def _from_seconds(node: Any, dialect: str) -> Any:
    """Convert seconds with their fraction, which FROM_UNIXTIME would lose."""
    return build_sql("TIMESTAMP_SECONDS(:x)", x=node.this) if node.args.get("scale") is None else None


_CODES = re.compile(r"%-?[YymdHIMSfpj]")


def _pattern(node: Any, dialect: str) -> Any:
    """Accept only date patterns of known codes: other letters are codes of Spark's patterns."""
    pattern = node.args.get("format")
    if pattern is None:
        return None
    if not pattern.is_string or re.search("[A-Za-z%]", _CODES.sub("", pattern.name)):
        raise untranslatable(f"this pattern of dates may mean something else in Spark SQL than in {dialect}",
                      "take years, months, days, hours, minutes and seconds, and join other letters with ||")  # fmt: skip
    return None


def _literal(node: Any, dialect: str) -> Any:
    """Rewrite a number with a decimal point as DOUBLE, which it is in DataFusion."""
    if dialect != "datafusion" or node.is_string or node.is_int:
        return None
    return build_sql("CAST(:x AS DOUBLE)", x=node)


_UNITS = ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")


def _date_diff(node: Any, dialect: str) -> Any:
    """Rewrite DATE_DIFF with truncated times: the dialect counts unit boundaries, Spark complete units."""
    unit = node.args.get("unit")
    name = unit.name.upper() if unit is not None else "DAY"
    if name not in _UNITS:
        raise untranslatable(f"date_diff of {name.lower()}s gives something else in Spark SQL than in {dialect}",
                      "count days, and divide")  # fmt: skip
    words = f"TIMESTAMPDIFF({name}, DATE_TRUNC('{name}', :a), DATE_TRUNC('{name}', :b))"
    return build_sql(words, a=node.expression, b=node.this)


def _array_length(node: Any, dialect: str) -> Any:
    """Rewrite the length of an array: that of an empty one is NULL in PostgreSQL."""
    return build_sql("NULLIF(SIZE(:x), 0)", x=node.this) if dialect == "postgres" else None


_DATAFUSION = {
    "make_array": "array", "array_has": "array_contains", "array_element": "try_element_at", "array_concat": "concat",
    "arrow_typeof": "typeof", "to_timestamp_seconds": "timestamp_seconds", "to_timestamp_millis": "timestamp_millis",
    "to_timestamp_micros": "timestamp_micros", "from_unixtime": "timestamp_seconds",
}  # fmt: skip
_ARROW_TYPES = {
    "int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT", "float32": "FLOAT", "float64": "DOUBLE",
    "utf8": "STRING", "boolean": "BOOLEAN", "binary": "BINARY", "date32": "DATE",
}  # fmt: skip
_HASHES = ("hash", "approx_quantile")


def _named(node: Any, dialect: str) -> Any:
    """Rewrite functions for which the parser has no node class."""
    name = str(node.this).lower()
    if dialect == "duckdb" and name == "list_position":
        return build_sql("NULLIF(ARRAY_POSITION(:x, :y), 0)", x=node.expressions[0], y=node.expressions[1])
    if name in ("date_part", "datepart") and len(node.expressions) == 2:
        return _part_of(node.expressions[0].name, node.expressions[1], dialect)
    if name in _HASHES:
        raise untranslatable(f"{name} of {dialect} gives other numbers than that of Spark SQL", "use md5 or sha256")
    if dialect != "datafusion":
        return None
    if name == "arrow_cast" and len(node.expressions) == 2:
        return _arrow_cast(node)
    if name == "list_slice" and len(node.expressions) > 1:
        return _slice(*node.expressions[:3])
    if name in _DATAFUSION:
        return exp.Anonymous(this=_DATAFUSION[name], expressions=node.expressions)
    return None


def _arrow_cast(node: Any) -> Any:
    wanted = _ARROW_TYPES.get(node.expressions[1].name.lower())
    if wanted is None:
        raise untranslatable(f"arrow_cast to {node.expressions[1].name} has no twin in Spark SQL", "write CAST(… AS …)")
    return exp.cast(node.expressions[0], wanted, dialect="spark")


def _slice(array: Any, first: Any, last: Any = None) -> Any:
    """Rewrite a slice from one position to another; Spark's SLICE has a length."""
    if not (_is_whole_literal(first, 1) and _is_whole_literal(last, 1)):
        raise untranslatable(
            "array_slice takes two places from 1 on here", "write slice(array, start, length) in Spark SQL"
        )
    return build_sql("SLICE(:x, :a, GREATEST(:b - :a + 1, 0))", x=array, a=first, b=last)
