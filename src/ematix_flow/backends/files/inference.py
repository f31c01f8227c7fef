"""Infers the types of text columns, and caches what was inferred for as long as the files stay the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ematix_flow.dataplane.task_errors import raise_bad_value_sql
from ematix_flow.foundation.cache import ContentCache, Stamp
from ematix_flow.sql.spark_text import quote, text_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# In order of preference. Digits with a leading zero are no numbers: 01234 is a ZIP code.
_INTEGER = r"^[+-]?(0|[1-9][0-9]*)$"
NUMBER = r"^[+-]?(([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|Inf(inity)?)$"
_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\\.[0-9]{1,6})?)?$"
ZONED = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_PARTS = r"^[+-]?([0-9]*)\\.?([0-9]*)(?:[eE]([+-]?[0-9]+))?$"
_UNLIKE_DIGITS = r"[eE].*$|[^0-9]"
_FEW_DIGITS = 15  # that many are exact in every double
_MOST_DIGITS = 38


def _digits(value: str) -> str:
    """Return SQL of the significant digits, without zeros at either end: equal for two spellings of one number."""
    return f"trim(BOTH '0' FROM regexp_replace({value}, '{_UNLIKE_DIGITS}', ''))"


def _part(number: int) -> str:
    return f"regexp_extract({{0}}, '{_PARTS}', {number})"


# Numbers that a double would change are exact decimals, or stay text.
_DOUBLE = "try_cast({0} AS DOUBLE)"
_SURVIVES = (
    f"length({_digits('{0}')}) <= {_FEW_DIGITS} AND ({_digits('{0}')} = '' OR abs({_DOUBLE}) BETWEEN 1E-300 AND 1E300)"
)
_EXACT = f"({_SURVIVES} OR {_digits('{0}')} = {_digits(f'CAST({_DOUBLE} AS STRING)')})"
_ISNUMBER = f"{{0}} RLIKE '{NUMBER}' AND NOT {{0}} RLIKE '^[+-]?0[0-9]'"
_EXPONENT = f"IF({_part(3)} = '', 0, coalesce(try_cast({_part(3)} AS INT), 9999))"
_WHOLE = f"greatest(0, length(trim(LEADING '0' FROM {_part(1)})) + {_EXPONENT})"
_SCALE = f"greatest(0, length(trim(TRAILING '0' FROM {_part(2)})) - {_EXPONENT})"
_CANDIDATES: tuple[tuple[str, str], ...] = (
    ("BIGINT", f"{{0}} RLIKE '{_INTEGER}' AND try_cast({{0}} AS BIGINT) IS NOT NULL"),
    ("DOUBLE", f"{_ISNUMBER} AND {_EXACT}"),
    ("DECIMAL", f"{_ISNUMBER} AND {{0}} RLIKE '{_PARTS}'"),
    ("BOOLEAN", "lower({0}) IN ('true', 'false')"),
    ("DATE", f"{{0}} RLIKE '{_DAY}' AND try_cast({{0}} AS DATE) IS NOT NULL"),
    ("TIMESTAMP_NTZ", f"{{0}} RLIKE '{_MOMENT}' AND try_cast({{0}} AS TIMESTAMP_NTZ) IS NOT NULL"),
    ("TIMESTAMP", f"{{0}} RLIKE '{ZONED}' AND try_cast({{0}} AS TIMESTAMP) IS NOT NULL"),
)
_TESTS = dict(_CANDIDATES)


def with_types(frame: DataFrame, kinds: Mapping[str, str], *, hint: str | None) -> DataFrame:
    """Return the columns in these types; with a `hint`, a value not exactly of its type raises with that hint."""
    return frame.selectExpr(*(_cast(name, kind, hint) for name, kind in kinds.items()))


def wrong_value(name: str, kind: str) -> str | None:
    """Return SQL of the error for a text that is not of this type, else NULL; None where any text is of the type."""
    column = quote(name)
    test = _test(kind) or (None if kind == "STRING" else f"try_cast({{0}} AS {kind}) IS NOT NULL")
    if test is None:
        return None
    message = f"concat({text_literal(f'column {name!r}: ')}, left({column}, 80), {text_literal(f' is not a {kind}, as the first rows are')})"
    return f"CASE WHEN {column} IS NOT NULL AND NOT ({test.replace('{0}', column)}) THEN {message} END"


def read_value(name: str, kind: str, *, unless: str) -> str:
    """Return SQL of the column in this type, NULL where the condition `unless` is true."""
    return f"CASE WHEN {unless} THEN NULL ELSE CAST({quote(name)} AS {kind}) END AS {quote(name)}"


def _cast(name: str, kind: str, hint: str | None) -> str:
    """Return SQL of the column in this type; with a hint it raises where a cast would change the value."""
    column = quote(name)
    cast, test = f"CAST({column} AS {kind})", _test(kind)
    if hint is None or test is None:
        return f"{cast} AS {column}"
    refused = raise_bad_value_sql(
        column,
        before=f"column {name!r}: ",
        after=f" is not a {kind}, as the first rows are",
        hint=hint,
    )
    return f"CASE WHEN {column} IS NULL OR ({test.replace('{0}', column)}) THEN {cast} ELSE {refused} END AS {column}"


def _test(kind: str) -> str | None:
    """Return the SQL condition that a text is exactly a value of this type, None where there is no test."""
    test = _TESTS.get(kind.partition("(")[0])
    if test is None or not kind.startswith("DECIMAL"):
        return test
    return f"{test} AND {_SCALE} <= {kind[:-1].partition(',')[2]}"


def kinds_of(frame: DataFrame, limit: int | None) -> dict[str, str]:
    """Infer the type of every column from all its values, or from those of the first `limit` rows."""
    frame = frame.limit(limit) if limit else frame
    tests: list[str] = []
    for position, name in enumerate(frame.columns):
        column = quote(name)
        tests.append(f"count({column}) AS n{position}")
        for kind, test in _CANDIDATES:
            tests.append(f"bool_and({column} IS NULL OR ({test.replace('{0}', column)})) AS {kind.lower()}{position}")
        tests.append(f"max({_WHOLE.replace('{0}', column)}) AS whole{position}")
        tests.append(f"max({_SCALE.replace('{0}', column)}) AS scale{position}")
    if not tests:
        return {}
    row = frame.selectExpr(*tests).collect()[0]
    return {name: _kind(row, position) for position, name in enumerate(frame.columns)}


def _kind(row: Any, position: int) -> str:
    if not row[f"n{position}"]:
        return "STRING"
    kind = next((kind for kind, _ in _CANDIDATES if row[f"{kind.lower()}{position}"]), "STRING")
    if kind != "DECIMAL":
        return kind
    whole, scale = row[f"whole{position}"], row[f"scale{position}"]
    return f"DECIMAL({_MOST_DIGITS},{scale})" if whole + scale <= _MOST_DIGITS else "STRING"


__all__ = ["Stamp", "keep_types", "recall_types"]
_SHELF = ContentCache("types", rules=1)


def recall_types(stamp: Stamp, options: Mapping[str, Any], columns: Sequence[str]) -> dict[str, str] | None:
    """Return the types of these columns cached for the same files, None where they must be inferred."""
    kinds = _SHELF.load(stamp, options)
    known = isinstance(kinds, dict) and list(kinds) == list(columns)
    return {name: str(kind) for name, kind in kinds.items()} if known and kinds is not None else None


def keep_types(stamp: Stamp, options: Mapping[str, Any], kinds: Mapping[str, str]) -> None:
    """Cache the types, unless a file is so new that it may change again within the file system's clock resolution."""
    _SHELF.store(stamp, options, dict(kinds))
