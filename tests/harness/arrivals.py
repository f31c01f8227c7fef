"""Files for streams that read folders."""

from __future__ import annotations

import os
import time
from pathlib import Path

_AGE = 60.0
"""Seconds; more than a stream waits for a file that may still grow."""


def put_whole(path: Path, text: str) -> None:
    """Write a file that appears at once, and whose last write lies long enough back for a stream to read it at once."""
    draft = path.with_name(f".{path.name}")
    draft.write_text(text)
    moment = time.time() - _AGE  # later files stay later ones: streams read the oldest first
    os.utime(draft, (moment, moment))
    draft.rename(path)
