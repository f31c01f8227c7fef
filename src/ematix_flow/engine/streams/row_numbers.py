"""Row numbers for a micro-batch while bad rows are searched in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW = "_flow_row"


def with_row_numbers(rows: DataFrame) -> DataFrame:
    """Return the rows with a number each, computed only once.

    A frame that is only persisted is computed anew where an executor is lost, and its rows may get other numbers then:
    good rows would be set aside in place of bad ones. Here the loss fails the micro-batch, which is retried as a whole.
    """
    return rows.selectExpr("*", f"monotonically_increasing_id() AS {ROW}").localCheckpoint(eager=True)
