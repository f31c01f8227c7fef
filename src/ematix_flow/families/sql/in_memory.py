"""Databases that live as long as this process: `:memory:`, which a pipeline opens more than once."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache, lru_cache
from pathlib import Path

MEMORY = ":memory:"


def is_in_memory(path: str) -> bool:
    """Whether the path means a database without a file."""
    return path.startswith(MEMORY)


@cache
def file_of(kind: str, name: str) -> Path:
    """The file that stands for the database of a connection in this process; it goes with the process.

    Every session of the connection finds the same tables, which a database of the driver's own memory could not give.
    """
    return Path(_folder()) / f"{kind}_{''.join(sign if sign.isalnum() else '_' for sign in name)}.db"


@lru_cache(maxsize=1)
def _folder() -> str:
    made = tempfile.mkdtemp(prefix="ematix-flow-memory-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made
