"""Every check refuses the same values in Spark, PostgreSQL, MariaDB, MySQL, SQLite and DuckDB, and in plain Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from ematix_flow.declare.normalizers.patterns import parse_pattern
from ematix_flow.declare.quality.checks import Between, Matches, NotNull, OneOf, RowCheck
from ematix_flow.declare.types import BigInt, ColumnType, Double, Numeric, Text, TimestampTZ
from ematix_flow.sql.expressions.check_conditions import failing_condition
from tests.spark.engines import Engine
from tests.spark.test_normalizers_agree import ODD

PATTERNS = (
    "^[a-z]+$",
    "[0-9]{2}",
    r"\bfoo\b",
    "^$",
    "^.$",
    r"\s$",
    "(?i)X",
    r"^[^@\s]+@[^@\s]+$",
    "a|é|😀",
    r"^(ab)?x*$",
    r"\\",
    "'",
)
TEXTS = [*ODD, "ab", "a@b", "it's", "it''s", "A", "Ä", "z", "Z", "zz", "\\", "a'b", "x x"]


def _refuses_text(check: RowCheck) -> Callable[[Any], bool]:
    match check:
        case NotNull():
            return lambda value: value is None
        case Between(_, low, high):
            return lambda value: (
                value is not None and ((low is not None and value < low) or (high is not None and value > high))
            )
        case OneOf(_, values):
            return lambda value: value is not None and value not in values
        case Matches(_, pattern):
            found = re.compile(pattern.write("python"))
            return lambda value: value is not None and found.search(value) is None


def _agree(engines: list[Engine], checks: Sequence[RowCheck], kind: ColumnType, of: str, values: Sequence[Any]) -> None:
    expected = [[_refuses_text(check)(value) for check in checks] for value in values]
    assert len({tuple(row) for row in expected}) > 1
    for engine in engines:
        engine.load(of, values)
        conditions = [failing_condition(check, "x", kind, engine.dialect) for check in checks]
        asked = [(f"CASE WHEN {condition} THEN 1 ELSE 0 END", None) for condition in conditions]
        found = [[bool(int(cell)) for cell in row] for row in engine.query(asked)]
        wrong = [
            (value, str(check))
            for value, given, wanted in zip(values, found, expected, strict=True)
            for check, one, other in zip(checks, given, wanted, strict=True)
            if one is not other
        ]
        assert wrong == [], engine.name


def test_texts_are_searched_listed_and_compared_alike(engines: list[Engine]) -> None:
    checks: list[RowCheck] = [Matches("x", parse_pattern(source, may_match_empty=True)) for source in PATTERNS]
    checks += [
        NotNull("x"),
        OneOf("x", ("a", "it's", "É", "", "back\\slash")),
        Between("x", "a", "z"),
        Between("x", None, "Z"),
        Between("x", "é", None),
    ]
    _agree(engines, checks, Text(), "text", TEXTS)


NUMBERS = [
    None,
    Decimal("0"),
    Decimal("-0.5"),
    Decimal("10"),
    Decimal("10.000001"),
    Decimal("99999999.5"),
    Decimal("-3"),
]


@pytest.mark.parametrize(
    ("kind", "of", "values"),
    [
        (Numeric(38, 6), "numeric", NUMBERS),
        (Double(), "double", [None if value is None else float(value) for value in NUMBERS]),
        (BigInt(), "big_int", [None if value is None else int(value) for value in NUMBERS]),
    ],
    ids=["numeric", "double", "big_int"],
)
def test_numbers_are_compared_alike(engines: list[Engine], kind: ColumnType, of: str, values: list[Any]) -> None:
    checks: list[RowCheck] = [
        Between("x", 0, 10), Between("x", Decimal("-0.5"), 10.0), Between("x", None, -3), NotNull("x"),
    ]  # fmt: skip
    if of == "big_int":
        checks.append(OneOf("x", (0, 10, -3)))
        wide = [Between("x", None, 10), OneOf("x", (2**62,))]
        _agree(engines, [*checks, *wide], kind, of, [*values, 2**62, -(2**62)])
        return
    _agree(engines, checks, kind, of, values)


def test_instants_are_compared_alike(engines: list[Engine]) -> None:
    values = [None, *(datetime(2026, 6, 1, hour, 0, 0, 123456, tzinfo=timezone.utc) for hour in (0, 5, 12, 23))]
    checks: list[RowCheck] = [Between("x", values[2], values[3]), Between("x", None, values[1]), NotNull("x")]
    _agree(engines, checks, TimestampTZ(), "timestamp_tz", values)
