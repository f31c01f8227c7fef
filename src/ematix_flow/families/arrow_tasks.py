"""Functions over Arrow batches in Spark tasks, for any column names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Work = Callable[[Iterator[Any]], Iterator[Any]]


def in_tasks(tasks: Any, work: Work, schema: Any) -> Any:
    """Return `tasks.mapInArrow(work, schema)`.

    Spark resolves columns by their bare names and reads `a.b` as a field of `a`: such columns are numbered meanwhile.
    """
    names = list(getattr(tasks, "columns", ()))
    if not any("." in name or "`" in name for name in names):
        return tasks.mapInArrow(work, schema)

    def named(batches: Iterator[Any]) -> Iterator[Any]:
        return work(batch.rename_columns(names) for batch in batches)

    return tasks.toDF(*(f"c{number}" for number in range(len(names)))).mapInArrow(named, schema)
