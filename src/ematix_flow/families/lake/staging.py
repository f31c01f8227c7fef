"""Rows of one run, written once beside the tables of the lake, so that the source is read exactly once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ematix_flow.families.arrow_tasks import in_tasks
from ematix_flow.foundation import fault

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def watched(frame: DataFrame) -> DataFrame:
    """Return the same rows, with the fault point of tests that kill a run in the middle of its stage."""
    if not fault.is_armed("mid_stage"):
        return frame  # keeps the rows out of Python
    driver = os.getpid()

    def passing(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            fault.point("mid_stage", victim=driver)

    passed: DataFrame = in_tasks(frame, passing, frame.schema)
    return passed
