"""The module that crash tests run in a process of its own; the environment says which target."""

from __future__ import annotations

import os
from typing import Annotated, Any

from ematix_flow import (
    BigInt,
    DeltaLocalConnection,
    DuckDBConnection,
    PostgresConnection,
    Text,
    TimestampTZ,
    ematix,
    pk,
)

_KIND, _PLACE = os.environ["CRASH_TARGET"].split("|")
_MAKE = {
    "postgres": lambda: PostgresConnection(name="crash", url=_PLACE),
    "duckdb": lambda: DuckDBConnection(name="crash", path=_PLACE),
    "delta": lambda: DeltaLocalConnection(name="crash", path=_PLACE),
}
CONNECTION = _MAKE[_KIND]()
ROWS = 2000


@ematix.table(schema=os.environ.get("CRASH_SCHEMA", "crash"))
class Numbers:
    """Rows without a key: a doubled row would show."""

    n: BigInt
    text: Text


@ematix.pipeline(target=Numbers, target_connection=CONNECTION, mode="append")
def append_numbers(spark: Any) -> Any:
    """The same rows on every run."""
    return spark.range(0, ROWS, 1, 4).selectExpr("id AS n", "concat('row ', id) AS text")


@ematix.pipeline(target=Numbers, target_connection=CONNECTION, mode="truncate")
def replace_numbers(spark: Any) -> Any:
    """All rows of the day that the environment names, in place of those of the day before."""
    first = ROWS * int(os.environ.get("CRASH_DAY", "0"))
    return spark.range(first, first + ROWS, 1, 4).selectExpr("id AS n", "concat('row ', id) AS text")


@ematix.table(schema=os.environ.get("CRASH_SCHEMA", "crash"), name="numbers")
class KeyedNumbers:
    """Rows with a key, whose texts change from day to day."""

    n: Annotated[BigInt, pk()]
    text: Text


@ematix.pipeline(target=KeyedNumbers, target_connection=CONNECTION, mode="merge")
def merge_numbers(spark: Any) -> Any:
    """The texts of the day that the environment names, and as many new rows."""
    day = int(os.environ.get("CRASH_DAY", "0"))
    return spark.range(0, ROWS + day, 1, 4).selectExpr("id AS n", f"'day {day}' AS text")


@ematix.table(schema=os.environ.get("CRASH_SCHEMA", "crash"), name="numbers")
class DatedNumbers:
    """Rows with a key and the moment of their change."""

    n: Annotated[BigInt, pk()]
    text: Text
    at: TimestampTZ


@ematix.pipeline(target=DatedNumbers, target_connection=CONNECTION, mode="scd2", event_timestamp_column="at")
def observe_numbers(spark: Any) -> Any:
    """Every number as it is on the day that the environment names."""
    day = int(os.environ.get("CRASH_DAY", "0"))
    return spark.range(0, ROWS, 1, 4).selectExpr(
        "id AS n", f"'day {day}' AS text", f"timestamp'2024-01-0{day + 1} 00:00:00Z' AS at"
    )
