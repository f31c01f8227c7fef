"""Signs of life while a run works: one live line on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType
from typing import IO, TYPE_CHECKING

from ematix_flow.cli.output import Output
from ematix_flow.cli.steps import doing
from ematix_flow.foundation.redact import mask

if TYPE_CHECKING:
    from ematix_flow.engine.result import Event

SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Knows where the run is; shows nothing by itself."""

    def __init__(self) -> None:
        self.event: Event | None = None
        self._step_began = time.monotonic()
        self._run_began = time.monotonic()
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        with self._lock:
            before = self.event
            if before is None or before.pipeline != event.pipeline:
                self._run_began = time.monotonic()
            if before is None or (before.pipeline, before.step) != (event.pipeline, event.step):
                self._step_began = time.monotonic()
            self.event = event

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Nothing was opened."""

    def step_of(self, pipeline: str) -> str:
        """The step the pipeline was last seen in."""
        event = self.event
        return event.step if event is not None and event.pipeline == pipeline else ""

    def forget(self) -> None:
        """The run has ended; what follows is not about it."""
        with self._lock:
            self.event = None

    def line(self) -> str:
        """Where the run is, in one line; empty between runs."""
        with self._lock:
            event, step_began, run_began = self.event, self._step_began, self._run_began
        if event is None:
            return ""
        in_step = time.monotonic() - step_began
        parts = [f"{event.pipeline}: {doing(event.step)} {event.text}".rstrip()]
        if event.rows is not None:
            parts.append(f"{event.rows:,} rows")
            if in_step >= 1 and event.rows:
                parts.append(f"{event.rows / in_step:,.0f} rows/s")
        if event.total:
            parts.append(f"of about {event.total:,}")
            if event.rows and 0 < event.rows < event.total and in_step >= 1:
                parts.append(f"about {seconds_left(event.rows, event.total, in_step):,.0f} s left")
        parts.append(f"{time.monotonic() - run_began:,.0f} s")
        return mask(", ".join(parts))


class PlainProgress(Progress):
    """One line every ten seconds, for log files."""

    def __init__(self, *, every: float = SECONDS_BETWEEN_LINES) -> None:
        super().__init__()
        self._every = every
        self._done = threading.Event()
        self._stream = own_stderr()
        self._ticker = threading.Thread(target=self._tick, name="flow-progress", daemon=True)

    def __enter__(self) -> Progress:
        self._ticker.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._done.set()
        self._ticker.join()
        self._stream.close()

    def _tick(self) -> None:
        while not self._done.wait(self._every):
            line = self.line()
            if line:
                self._stream.write(f"{line}\n")
                self._stream.flush()


class LiveProgress(Progress):
    """One line that is drawn again and again, and is gone when the run has ended."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        self._stream = own_stderr()
        console = Console(file=self._stream, force_terminal=True)
        self._live = Live(
            get_renderable=lambda: Text(f"  {self.line()}" if self.event else "", style="dim", overflow="ellipsis", no_wrap=True),
            console=console,
            transient=True,
            refresh_per_second=4,
            redirect_stdout=False,
            redirect_stderr=False,
        )  # fmt: skip

    def __enter__(self) -> Progress:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()
        self._stream.close()


def progress_for(output: Output) -> Progress:
    """The kind of progress that suits the reader."""
    if not output.progress:
        return Progress()
    return LiveProgress() if output.on_terminal and not output.json else PlainProgress()


def seconds_left(rows: int, total: int, seconds: float) -> float:
    """How long the rest takes when it goes on like this.

    >>> seconds_left(1000, 4000, 5.0)
    15.0
    """
    return (total - rows) / (rows / seconds)


def own_stderr() -> IO[str]:
    """A copy of stderr: the engine turns the original away while the JVM starts."""
    try:
        return os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="replace")
    except (OSError, ValueError, AttributeError):  # a stderr that is no file, as in a notebook
        return open(os.devnull, "w", encoding="utf-8")
