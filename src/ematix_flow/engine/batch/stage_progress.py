"""Progress reports while a stage is filled: rows and bytes so far, once a second."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ematix_flow.dataplane import progress
from ematix_flow.dataplane.progress import TaskCounts

SECONDS = 1.0


@contextmanager
def report_progress(folder: Path | None, report: Callable[[TaskCounts], None]) -> Iterator[None]:
    """Call `tell` once a second, on a separate thread, with the rows and bytes counted since the block began."""
    if folder is None:
        yield
        return
    ended = threading.Event()
    before = {kind: progress.total_counts(folder, kind) for kind in (progress.READ, progress.STAGED)}

    def tick() -> None:
        while not ended.wait(SECONDS):
            read, staged = (progress.total_counts(folder, kind).since(earlier) for kind, earlier in before.items())
            report(read if read.rows else staged)  # nothing is counted for systems that Spark itself reads

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=5)
