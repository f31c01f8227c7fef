"""Progress reports while a stage is filled: rows and bytes so far, once a second."""

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
    """Call `tell` once a second, on a separate thread, with the rows and bytes counted since the block began."""
    if folder is None:
        yield
        return
    ended = threading.Event()
    before = {kind: progress.counted(folder, kind) for kind in (progress.READ, progress.STAGED)}

    def tick() -> None:
        while not ended.wait(SECONDS):
            read, staged = (progress.counted(folder, kind).since(earlier) for kind, earlier in before.items())
            tell(read if read.rows else staged)  # nothing is counted for systems that Spark itself reads

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=5)
