"""Signs of life while a stage fills: rows and bytes so far, once a second."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ematix_flow.families import progress
from ematix_flow.families.progress import Counted

SECONDS = 1.0


@contextmanager
def ticking(folder: Path | None, tell: Callable[[Counted], None]) -> Iterator[None]:
    """Call `tell` with what was counted since the block began, until it ends."""
    if folder is None:
        yield
        return
    ended = threading.Event()
    before = {kind: progress.counted(folder, kind) for kind in (progress.READ, progress.STAGED)}

    def tick() -> None:
        while not ended.wait(SECONDS):
            read, staged = (progress.counted(folder, kind).since(earlier) for kind, earlier in before.items())
            tell(read if read.rows else staged)  # a system that Spark reads itself counts nothing

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=5)
