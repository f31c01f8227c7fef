"""Work on Arrow batches in Spark's tasks, whatever the columns are called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Work = Callable[[Iterator[Any]], Iterator[Any]]


def in_tasks(tasks: Any, work: Work, schema: Any) -> Any:
    """Return what `mapInArrow` of a frame, or of what stands for one, returns.

    Spark looks columns up by their bare names, and would take `a.b` for a field of `a`: such columns have numbers on the way.
    """
    names = list(getattr(tasks, "columns", ()))
    if not any("." in name or "`" in name for name in names):
        return tasks.mapInArrow(work, schema)

    def named(batches: Iterator[Any]) -> Iterator[Any]:
        return work(batch.rename_columns(names) for batch in batches)

    return tasks.toDF(*(f"c{number}" for number in range(len(names)))).mapInArrow(named, schema)
