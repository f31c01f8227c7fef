"""A file that one process at a time has, among all that see the disk it is on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from ematix_flow.families.lake.place import explained
from ematix_flow.foundation.errors import LeaseHeld


def take(file: Path, refusal: Callable[[], LeaseHeld], *, seconds: float = 0.0) -> int:
    """The handle of the file, which whoever closes it lets go; a process that was killed lets go by itself, its children
    a moment later."""
    with explained(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    deadline = time.monotonic() + seconds
    while not _locked(handle):
        if time.monotonic() > deadline:
            os.close(handle)
            raise refusal()
        time.sleep(0.05)
    return handle


def _locked(handle: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows has none; the stream's own lease keeps others away
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
