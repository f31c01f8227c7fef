"""`:memory:` databases: files that exist until the process ends, because a pipeline opens one several times."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache, lru_cache
from pathlib import Path

MEMORY = ":memory:"


def is_in_memory(path: str) -> bool:
    """Return whether the path names a database without a file."""
    return path.startswith(MEMORY)


@cache
def file_of_memory_database(kind: str, name: str) -> Path:
    """Return the file that holds this connection's `:memory:` database; it is deleted when the process exits.

    Every session of the connection sees the same tables, which the driver's own in-memory database cannot offer.
    """
    return Path(_folder()) / f"{kind}_{''.join(sign if sign.isalnum() else '_' for sign in name)}.db"


@lru_cache(maxsize=1)
def _folder() -> str:
    folder = tempfile.mkdtemp(prefix="ematix-flow-memory-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
