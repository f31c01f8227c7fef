"""An exclusive lock on a file, across all processes that share its disk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from ematix_flow.foundation.errors import LeaseHeld
from ematix_flow.storage.paths import translated_os_errors


def lock_file(file: Path, refusal: Callable[[], LeaseHeld], *, seconds: float = 0.0) -> int:
    """Lock the file and return its descriptor, which releases the lock when closed; raise `refusal` after `seconds`.

    A killed process releases the lock at once, child processes that inherited the descriptor a moment later.
    """
    with translated_os_errors(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    deadline = time.monotonic() + seconds
    while not _try_lock(handle):
        if time.monotonic() > deadline:
            os.close(handle)
            raise refusal()
        time.sleep(0.05)
    return handle


def _try_lock(handle: int) -> bool:
    try:
        import fcntl
    except ImportError:  # not available on Windows, where only the stream's own lease excludes others
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
