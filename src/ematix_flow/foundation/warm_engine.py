"""What a command must know to join a warm engine before it imports anything else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def build_identity() -> dict[str, object]:
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


VARIABLE = "EMATIX_FLOW_ENGINE_DIR"


def engine_folder() -> Path:
    """Return EMATIX_FLOW_ENGINE_DIR, else a folder in the user's home."""
    own = os.environ.get(VARIABLE)
    return Path(own) if own else Path.home() / ".ematix-flow" / "engine"


_state = {"is_interactive": False}


def detect_interactive() -> None:
    """Record whether this command writes to a terminal outside of continuous integration."""
    _state["is_interactive"] = sys.stderr is not None and sys.stderr.isatty() and not os.environ.get("CI")


def is_interactive() -> bool:
    """Return the result of `detect`; False in programs that use the package as a library."""
    return _state["is_interactive"]
