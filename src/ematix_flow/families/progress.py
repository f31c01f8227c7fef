"""How far a read has come: tasks leave their counts in a folder, the driver adds them up.

Works where driver and tasks share a disk, which is where a person looks at a terminal; elsewhere it stays silent.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass
class _Watched:
    folder: str | None = None


_watched = _Watched()


@contextmanager
def watching() -> Iterator[Path]:
    """Count rows of reads that are planned inside this block."""
    folder = tempfile.mkdtemp(prefix="ematix-flow-progress-")
    _watched.folder = folder
    try:
        yield Path(folder)
    finally:
        _watched.folder = None
        shutil.rmtree(folder, ignore_errors=True)


def folder() -> str | None:
    """Where tasks of this run leave their counts, None when nobody watches."""
    return _watched.folder


class TaskCount:
    """One task's count, on disk after every batch; a folder that is not there is nobody's trouble."""

    def __init__(self, where: str | None) -> None:
        self._file = os.path.join(where, f"{os.getpid()}-{id(self)}") if where else None
        self._rows = 0

    def add(self, rows: int) -> None:
        """Count some more."""
        self._rows += rows
        if self._file is not None:
            with suppress(OSError), open(self._file, "w") as out:
                out.write(str(self._rows))


def total(where: Path) -> int:
    """Rows counted by all tasks so far."""
    rows = 0
    for item in where.glob("*"):
        with suppress(OSError, ValueError):
            rows += int(item.read_text() or 0)
    return rows
