"""Locks on files, across all processes that share their disk.

A lock ends with the process that holds it, so it needs no renewal and cannot be lost, in contrast to a lease.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ematix_flow.foundation.errors import LeaseHeld
from ematix_flow.storage.os_errors import translated_os_errors

try:
    import fcntl
except ImportError:  # not available on Windows, where only the stream's own lease and Delta's log exclude others
    fcntl = None  # type: ignore[assignment]

_LOOK_SECONDS = 0.05


def try_lock(file: Path, *, shared: bool = False, mode: int = 0o644) -> IO[bytes] | None:
    """Return a file locked without waiting, None when another lock conflicts; closing it releases the lock.

    A new file gets these permissions. A killed process releases the lock at once, child processes that inherited the descriptor a moment later.
    """
    try:
        return _lock(file, shared=shared, waits=False, mode=mode)
    except BlockingIOError:
        return None


def lock_file(file: Path, refusal: Callable[[], LeaseHeld], *, seconds: float = 0.0) -> IO[bytes]:
    """Lock the file and return it, which releases the lock when closed; raise `refusal` after `seconds`."""
    deadline = time.monotonic() + seconds
    with translated_os_errors(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
        while (held := try_lock(file)) is None:
            if time.monotonic() > deadline:
                raise refusal()
            time.sleep(_LOOK_SECONDS)
    return held


@contextmanager
def locked_file(file: Path) -> Iterator[None]:
    """Wait for the lock of the file, and hold it inside."""
    with translated_os_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        held = _lock(file, shared=False, waits=True, mode=0o644)
    with held:
        yield


def _lock(file: Path, *, shared: bool, waits: bool, mode: int) -> IO[bytes]:
    opened = os.fdopen(os.open(file, os.O_RDWR | os.O_CREAT, mode), "r+b")
    try:
        if fcntl is not None:
            lock = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            fcntl.flock(opened, lock if waits else lock | fcntl.LOCK_NB)
    except BaseException:
        opened.close()
        raise
    return opened
