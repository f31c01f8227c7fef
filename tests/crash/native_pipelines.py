"""The module that the crash tests of the native engine run in a process of its own."""

from __future__ import annotations

import os
from typing import Annotated, Any

from ematix_flow import BigInt, DeltaLocalConnection, Text, ematix, pk

CONNECTION = DeltaLocalConnection(name="crash", path=os.environ["CRASH_TARGET"].split("|")[1])
ROWS = int(os.environ["CRASH_ROWS"])


@ematix.table(schema="crash", name="numbers")
class Numbers:
    """The same table for both ways to load it."""

    n: Annotated[BigInt, pk()]
    text: Text


@ematix.pipeline(target=Numbers, target_connection=CONNECTION, mode="append")
def append(spark: Any) -> Any:
    """The same rows on every run."""
    return rows(spark)


@ematix.pipeline(target=Numbers, target_connection=CONNECTION, mode="merge")
def merge(spark: Any) -> Any:
    """Rows that say how many they are: with another number, all of them change."""
    return rows(spark)


def rows(spark: Any) -> Any:
    """In several tasks."""
    return spark.range(0, ROWS, 1, 4).selectExpr("id AS n", f"concat('of {ROWS} ', id) AS text")
