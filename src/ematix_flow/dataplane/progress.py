"""Progress of a load: tasks write their counts to a folder, the driver adds them up.

This works where driver and tasks share a disk; elsewhere the counts stay zero.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

READ = "read"
STAGED = "staged"
_SECONDS_BETWEEN_WRITES = 0.2


# Concurrent runs in one process each have their own folder.
_watched: ContextVar[str | None] = ContextVar("progress_folder", default=None)


@dataclass(frozen=True)
class TaskCounts:
    """A number of rows and their size in bytes as Arrow batches."""

    rows: int = 0
    size: int = 0

    def since(self, before: TaskCounts) -> TaskCounts:
        """Return the difference to an earlier count."""
        return TaskCounts(max(0, self.rows - before.rows), max(0, self.size - before.size))


@contextmanager
def count_rows() -> Iterator[Path]:
    """Count the rows of reads and stages planned inside this block; yield the folder of the counts."""
    folder = tempfile.mkdtemp(prefix="ematix-flow-progress-")
    before = _watched.set(folder)
    try:
        yield Path(folder)
    finally:
        _watched.reset(before)
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class TaskCounter:
    """Counts the batches that pass through one job's tasks; created by the driver, used in the tasks.

    A task has one file, so a repeated attempt is not counted twice.
    """

    kind: str
    job: str
    folder: str | None

    @classmethod
    def of(cls, kind: str) -> TaskCounter:
        """Return a counter for tasks that are planned now; it counts nothing outside of `watching`."""
        return cls(kind, secrets.token_hex(4), _watched.get())

    def passing(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches unchanged and count them."""
        if self.folder is None:
            yield from batches
            return
        file = os.path.join(self.folder, f"{self.kind}-{self.job}-{_task()}")
        rows = size = 0
        written = 0.0
        for batch in batches:
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if time.monotonic() - written > _SECONDS_BETWEEN_WRITES:
                _write(file, rows, size)
                written = time.monotonic()
            yield batch
        _write(file, rows, size)


def total_counts(folder: Path, kind: str) -> TaskCounts:
    """Return the sum of all tasks' counts so far."""
    rows = size = 0
    for item in folder.glob(f"{kind}-*"):
        with suppress(OSError, ValueError):
            more_rows, more_size = item.read_text().split()
            rows, size = rows + int(more_rows), size + int(more_size)
    return TaskCounts(rows, size)


def file_bytes(folder: Path) -> int | None:
    """Return the size of a stage's data files in bytes; None when the folder does not exist on this machine."""
    if not folder.is_dir():
        return None
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            if not name.startswith(("_", ".")) and not (name == "facts.json" and Path(path) == folder):
                with suppress(OSError):
                    total += os.path.getsize(os.path.join(path, name))
    return total


def _write(file: str, rows: int, size: int) -> None:
    """Write a task's counts; errors, such as a missing folder, are ignored."""
    with suppress(OSError), open(file, "w") as out:
        out.write(f"{rows} {size}")


def _task() -> str:
    from pyspark import TaskContext

    context = TaskContext.get()
    return str(context.partitionId()) if context is not None else _own_task()


def _own_task() -> str:
    return f"process-{os.getpid()}-{threading.get_ident()}"
