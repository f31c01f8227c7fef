"""Types of columns that are only text: the first that every value has, and that says the value exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ematix_flow.families.carry import refusing_sql
from ematix_flow.families.lake.session import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The first type that every value of a column has. Digits with a leading zero are names, not numbers: 01234 is a ZIP code.
_INTEGER = r"^[+-]?(0|[1-9][0-9]*)$"
_NUMBER = r"^[+-]?(([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|Inf(inity)?)$"
_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\\.[0-9]{1,6})?)?$"
_ZONED = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_PARTS = r"^[+-]?([0-9]*)\\.?([0-9]*)(?:[eE]([+-]?[0-9]+))?$"
_UNLIKE_DIGITS = r"[eE].*$|[^0-9]"
_FEW_DIGITS = 15  # so many survive in every double
_MOST_DIGITS = 38


def _digits(value: str) -> str:
    """The digits that matter, without zeros at either end: two spellings of one number have the same."""
    return f"trim(BOTH '0' FROM regexp_replace({value}, '{_UNLIKE_DIGITS}', ''))"


def _part(number: int) -> str:
    return f"regexp_extract({{0}}, '{_PARTS}', {number})"


# Numbers that a double would bend are exact decimals, or stay text.
_DOUBLE = "try_cast({0} AS DOUBLE)"
_SURVIVES = (
    f"length({_digits('{0}')}) <= {_FEW_DIGITS} AND ({_digits('{0}')} = '' OR abs({_DOUBLE}) BETWEEN 1E-300 AND 1E300)"
)
_EXACT = f"({_SURVIVES} OR {_digits('{0}')} = {_digits(f'CAST({_DOUBLE} AS STRING)')})"
_IS_NUMBER = f"{{0}} RLIKE '{_NUMBER}' AND NOT {{0}} RLIKE '^[+-]?0[0-9]'"
_EXPONENT = f"IF({_part(3)} = '', 0, coalesce(try_cast({_part(3)} AS INT), 9999))"
_WHOLE = f"greatest(0, length(trim(LEADING '0' FROM {_part(1)})) + {_EXPONENT})"
_SCALE = f"greatest(0, length(trim(TRAILING '0' FROM {_part(2)})) - {_EXPONENT})"
_CANDIDATES: tuple[tuple[str, str], ...] = (
    ("BIGINT", f"{{0}} RLIKE '{_INTEGER}' AND try_cast({{0}} AS BIGINT) IS NOT NULL"),
    ("DOUBLE", f"{_IS_NUMBER} AND {_EXACT}"),
    ("DECIMAL", f"{_IS_NUMBER} AND {{0}} RLIKE '{_PARTS}'"),
    ("BOOLEAN", "lower({0}) IN ('true', 'false')"),
    ("DATE", f"{{0}} RLIKE '{_DAY}' AND try_cast({{0}} AS DATE) IS NOT NULL"),
    ("TIMESTAMP_NTZ", f"{{0}} RLIKE '{_MOMENT}' AND try_cast({{0}} AS TIMESTAMP_NTZ) IS NOT NULL"),
    ("TIMESTAMP", f"{{0}} RLIKE '{_ZONED}' AND try_cast({{0}} AS TIMESTAMP) IS NOT NULL"),
)
_TESTS = dict(_CANDIDATES)


def typed(frame: DataFrame, limit: int | None) -> DataFrame:
    """The columns in the types their values have; one pass over all rows, or over the first `limit`."""
    kinds = _kinds(frame.limit(limit) if limit else frame)
    return frame.selectExpr(*(_cast(name, kind, sampled=bool(limit)) for name, kind in kinds.items()))


def cast_to(frame: DataFrame, columns: Sequence[tuple[str, str]]) -> DataFrame:
    """The columns in types that are known already; a value of another type is refused, a column that is not there NULL."""
    there = set(frame.columns)
    made = [
        _cast(name, kind.upper(), sampled=True) if name in there else f"CAST(NULL AS {kind}) AS {quote(name)}"
        for name, kind in columns
    ]
    return frame.selectExpr(*made)


def _cast(name: str, kind: str, *, sampled: bool) -> str:
    """A value that the sample did not foretell is refused, because a cast might bend it."""
    column = quote(name)
    cast = f"CAST({column} AS {kind})"
    test = _TESTS.get(kind.partition("(")[0])
    if not sampled or test is None:
        return f"{cast} AS {column}"
    if kind.startswith("DECIMAL"):
        test = f"{test} AND {_SCALE} <= {kind[:-1].partition(',')[2]}"
    refused = refusing_sql(
        column,
        before=f"column {name!r}: ",
        after=f" is not a {kind}, as the first rows are",
        hint="raise schema_infer_max_records, or leave it out: then all rows are looked at; of a stream, declare the fields",
    )
    return f"CASE WHEN {column} IS NULL OR ({test.replace('{0}', column)}) THEN {cast} ELSE {refused} END AS {column}"


def _kinds(frame: DataFrame) -> dict[str, str]:
    """The type of every column."""
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
