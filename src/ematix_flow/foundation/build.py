"""The identity of the interpreter and of this package's files: processes that exchange work must be of one build."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def build() -> dict[str, object]:
    """Return the interpreter, its version, the package's folder and the newest modification time of a file in it."""
    newest = max(entry.stat().st_mtime_ns for entry in _files(_PACKAGE))
    return {"python": sys.executable, "version": sys.version, "package": str(_PACKAGE), "newest": newest}


def is_installed() -> bool:
    """Return whether interpreter and package are still on disk; a removed virtual environment has neither."""
    return os.path.exists(sys.executable) and Path(__file__).exists()


def _files(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    yield from _files(Path(entry.path))
            elif entry.name.endswith(".py"):
                yield entry
