"""Signs of life while a stage fills: rows read so far, once a second."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ematix_flow.families import progress

SECONDS = 1.0


@contextmanager
def ticking(folder: Path | None, tell: Callable[[int], None]) -> Iterator[None]:
    """Call `tell` with the rows counted so far until the block ends."""
    if folder is None:
        yield
        return
    ended = threading.Event()

    def tick() -> None:
        while not ended.wait(SECONDS):
            tell(progress.total(folder))

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=5)
