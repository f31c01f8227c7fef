"""Values of every column type that systems like to bend: extremes, empty, odd; and which of them who refuses."""

from __future__ import annotations

import math
import struct
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

from ematix_flow import (
    JSON,
    JSONB,
    UUID,
    BigInt,
    Boolean,
    Bytes,
    Date,
    Double,
    Float,
    Integer,
    Numeric,
    SmallInt,
    String,
    Text,
    Timestamp,
    TimestampTZ,
)

NAN, INFINITY = float("nan"), float("inf")
MOMENTS = [
    datetime(1, 1, 1),
    datetime(1582, 10, 10, 12),
    datetime(1900, 1, 1, 0, 0, 0, 1),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(1970, 1, 1),
    datetime(2026, 3, 29, 2, 30, 0, 123456),
    datetime(9999, 12, 31, 23, 59, 59, 999999),
]
TEXTS = [
    "", " ", "trailing  ", "\t\r\n", 'say "so", or; so|so', "it's", "back\\slash", "\\N", "NULL", "null", "NaN", "0012",
    "grüße", "e\u0301", "שלום", "漢字", "😀👩‍👩‍👧", "#hash", "a=b&c", "x" * 5000,
]  # fmt: skip


def single(value: float) -> float:
    """The nearest number that a 32-bit float can hold."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


TYPES: dict[str, tuple[Any, list[Any]]] = {
    "a_small_int": (SmallInt, [-(2**15), -1, 0, 2**15 - 1]),
    "an_integer": (Integer, [-(2**31), 0, 2**31 - 1]),
    "a_big_int": (BigInt, [-(2**63), 2**53 + 1, 2**63 - 1]),
    "a_float": (Float, [0.0, single(0.1), single(16777217.0), single(-3.4028234663852886e38), single(1.1754944e-38), NAN,
                        INFINITY, -INFINITY]),
    "a_double": (Double, [0.0, 0.1, 1 / 3, -1.7976931348623157e308, 2.2250738585072014e-308, NAN, INFINITY, -INFINITY]),
    "a_boolean": (Boolean, [True, False]),
    "a_text": (Text, [*TEXTS, "zero\0byte"]),
    "a_string": (String[5], ["", "abcde", "😀😀😀😀😀", "ab   "]),
    "a_date": (Date, [moment.date() for moment in MOMENTS] + [date(2024, 2, 29)]),
    "a_timestamp": (Timestamp, MOMENTS),
    "an_instant": (TimestampTZ, [moment.replace(tzinfo=timezone.utc) for moment in MOMENTS]),
    "a_price": (Numeric[12, 2], [Decimal("0.00"), Decimal("-9999999999.99"), Decimal("0.01"), Decimal("1.10")]),
    "a_whole": (Numeric[38, 0], [Decimal(10**38 - 1), Decimal(-(10**38) + 1), Decimal(0)]),
    "a_fraction": (Numeric[38, 18], [Decimal("12345678901234567890.123456789012345678"), Decimal("-1E-18"), Decimal("0.1")]),
    "a_json": (JSON, ['{"b": [1, {"c": null}],  "a": "😀", "n": 1.50}', "[]", '"text"', "null", "0"]),
    "a_jsonb": (JSONB, ['{"deep": {"er": [[1, 2], []]}, "a": "ü\\n"}', "{}", "null", "true"]),
    "a_uuid": (UUID, ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-4fff-bfff-ffffffffffff"]),
    "some_bytes": (Bytes, [b"", b"\0\1\xff", bytes(range(256)), b"text"]),
}  # fmt: skip

NOT_FINITE = [NAN, INFINITY, -INFINITY]
# ORC counts old days in the Julian calendar, which went from 4 to 15 October 1582, and has no minus zero seconds.
NOT_IN_ORC = [datetime(1582, 10, 10, 12), datetime(1969, 12, 31, 23, 59, 59, 999999)]
_MYSQL = {"a_float": NOT_FINITE, "a_double": NOT_FINITE}
REFUSED: dict[str, dict[str, list[Any]]] = {
    "postgres": {"a_text": ["zero\0byte"]},
    "mariadb": _MYSQL,
    "mysql8": _MYSQL,
    "sqlite": {"a_float": [NAN], "a_double": [NAN]},
    "files-orc": {
        "a_date": [date(1582, 10, 10)],
        "a_timestamp": NOT_IN_ORC,
        "an_instant": [moment.replace(tzinfo=timezone.utc) for moment in NOT_IN_ORC],
    },
}
"""What a system cannot hold; loading it is a clear error, never another value."""


def same(left: Any, right: Any) -> bool:
    """Equal, NaN equal to itself."""
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return bool(left == right) and (isinstance(left, bool) == isinstance(right, bool))


def refused_by(system: str) -> dict[str, list[Any]]:
    """For each column, the values that this system cannot hold; files hold the same wherever they are."""
    return REFUSED.get(_format_of(system), {})


def _format_of(system: str) -> str:
    return system.replace("files-s3-", "files-")


def held_by(system: str) -> dict[str, list[Any]]:
    """For each column, the values this system holds."""
    refused = refused_by(system)
    return {
        name: [value for value in values if not any(same(value, other) for other in refused.get(name, ()))]
        for name, (_, values) in TYPES.items()
    }


def written_by(system: str) -> dict[str, list[Any]]:
    """For each column, the values that somebody else can put there: text files have no bytes, only text."""
    held = held_by(system)
    if _format_of(system) in ("files-csv", "files-jsonl"):
        held["some_bytes"] = [value for value in held["some_bytes"] if value.isascii() and value.isalpha()]
    return held


def rows_of(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """As many rows as the longest column needs, NULL where a column has no value left, and one row of NULLs."""
    longest = max(len(values) for values in columns.values())
    return [
        {"n": number, **{name: values[number] if number < len(values) else None for name, values in columns.items()}}
        for number in range(longest + 1)
    ]


def differences(expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> list[str]:
    """Every cell that came back otherwise."""
    there = {row["n"]: row for row in found}
    if sorted(there) != [row["n"] for row in expected] or len(there) != len(found):
        return [f"rows {sorted(row['n'] for row in found)} instead of {len(expected)}"]
    return [
        f"{name}: {wanted!r} became {there[row['n']][name]!r}"
        for row in expected
        for name, wanted in row.items()
        if not same(wanted, there[row["n"]][name])
    ]
