"""What a Python task finds on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa


def _found(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import gc
    import sys

    list(batches)
    archives = [entry for entry in sys.path_importer_cache if entry.endswith((".jar", ".zip"))]
    yield pa.RecordBatch.from_pydict({"archives": [",".join(archives)], "frozen": [gc.get_freeze_count()]})


def test_a_task_reads_no_archives_and_collects_only_its_own_garbage(spark: Any) -> None:
    found = spark.range(0, 4, 1, 1).mapInArrow(_found, "archives STRING, frozen LONG").collect()
    assert [row.archives for row in found] == [""]
    assert found[0].frozen > 10_000
