"""Locations of declarations in the user's files."""

from __future__ import annotations

import inspect
import linecache
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

_PACKAGE = str(Path(__file__).resolve().parent.parent) + os.sep


@dataclass(frozen=True)
class Location:
    """A line of a user's file; `str()` gives `pipelines.py:41`."""

    file: str
    line: int
    in_function: bool = field(default=False, compare=False, repr=False)
    """Whether the line ran inside a function, such as a factory or a test, which declares anew at every call."""

    @property
    def text(self) -> str:
        """Return the source line, stripped; empty if the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def stamp(self) -> tuple[int, int] | None:
        """Return the modification time and size of the file; None if it cannot be read."""
        try:
            status = os.stat(self.file)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size

    def __str__(self) -> str:
        try:
            shown = os.path.relpath(self.file)
        except ValueError:  # another drive on Windows
            shown = self.file
        return f"{self.file if shown.startswith('..') else shown}:{self.line}"


def is_ours(filename: str) -> bool:
    """Return whether a file belongs to this package."""
    return filename.startswith(_PACKAGE)


def caller() -> Location | None:
    """Return the location of the nearest frame outside this package: the line that the user wrote."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        ours = is_ours(filename) or str(frame.f_globals.get("__name__", "")).startswith("ematix_flow.")
        if not ours and not filename.startswith("<frozen"):
            # The bodies of modules and classes are not optimized code; those of functions are.
            return Location(filename, frame.f_lineno, bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED))
        frame = frame.f_back
    return None
