"""Where in the user's files a declaration stands."""

from __future__ import annotations

import linecache
import os
import sys
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = str(Path(__file__).resolve().parent.parent) + os.sep


@dataclass(frozen=True)
class Location:
    """A line of a user's file; `str()` gives `pipelines.py:41`."""

    file: str
    line: int

    @property
    def text(self) -> str:
        """The source line itself, stripped; empty when the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        try:
            shown = os.path.relpath(self.file)
        except ValueError:  # another drive on Windows
            shown = self.file
        return f"{self.file if shown.startswith('..') else shown}:{self.line}"


def is_ours(filename: str) -> bool:
    """Whether a file belongs to this package."""
    return filename.startswith(_PACKAGE)


def caller() -> Location | None:
    """The nearest frame outside this package: the line the user wrote."""
    frame = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        ours = is_ours(filename) or str(frame.f_globals.get("__name__", "")).startswith("ematix_flow.")
        if not ours and not filename.startswith("<frozen"):
            return Location(filename, frame.f_lineno)
        next_frame = frame.f_back
        if next_frame is None:
            return None
        frame = next_frame
    return None
