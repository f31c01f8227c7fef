"""Progress of a run: one live line on a terminal, a plain line every ten seconds in a log."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from ematix_flow.cli.render.output import Output
from ematix_flow.cli.render.step_labels import step_label
from ematix_flow.cli.render.units import format_rate
from ematix_flow.foundation.redact import mask

if TYPE_CHECKING:
    from ematix_flow.engine.batch.result import ProgressEvent

SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """The current step and counts of a run; this base class prints nothing."""

    def __init__(self, pipeline: str) -> None:
        self.pipeline = pipeline
        self.event: ProgressEvent | None = None
        self._run_began = self._step_began = self._last_event_at = time.monotonic()
        self._lock = threading.Lock()

    def __call__(self, event: ProgressEvent) -> None:
        with self._lock:
            self._last_event_at = time.monotonic()
            if self.step != event.step:
                self._step_began = self._last_event_at
            self.event = event

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: there is nothing to close."""

    @property
    def step(self) -> str:
        """The step of the latest event; empty before the first."""
        return self.event.step if self.event is not None else ""

    def line(self) -> str:
        """Return the current state of the run in one line."""
        with self._lock:
            event, elapsed = self.event, time.monotonic() - self._run_began
            counting = self._last_event_at - self._step_began
        if event is None:
            return mask(f"{self.pipeline}: planning, {elapsed:,.0f} s")
        what = f"{self.pipeline}: {step_label(event.step)} {event.text}".rstrip()
        return mask(
            ", ".join([what, *_rate_text(event, counting), f"{elapsed:,.0f} s", *_estimate_text(event, counting)])
        )


def _rate_text(event: ProgressEvent, seconds: float) -> Iterator[str]:
    if event.rows is not None:
        yield f"{event.rows:,} rows"
    if seconds >= 1:
        yield from format_rate(event.rows, event.bytes_moved, seconds)


def _estimate_text(event: ProgressEvent, seconds: float) -> Iterator[str]:
    """Yield the expected total, and the remaining time where rows and total are known."""
    if event.total:
        yield f"of about {event.total:,}"
    if event.rows and event.total and event.rows < event.total and seconds >= 1:
        yield f"about {seconds_left(event.rows, event.total, seconds):,.0f} s left"


class PlainProgress(Progress):
    """Progress as one line every ten seconds, for log files; a daemon thread writes it."""

    def __init__(self, pipeline: str, *, every: float = SECONDS_BETWEEN_LINES) -> None:
        super().__init__(pipeline)
        self._every = every
        self._done = threading.Event()
        self._stream = duplicated_stderr()
        self._ticker = threading.Thread(target=self._tick, name="flow-progress", daemon=True)

    def __enter__(self) -> Progress:
        self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._ticker.join()
        self._stream.close()

    def _tick(self) -> None:
        while not self._done.wait(self._every):
            self._stream.write(f"{self.line()}\n")
            self._stream.flush()


class LiveProgress(Progress):
    """Progress as one line that is redrawn in place and disappears when the run ends."""

    def __init__(self, pipeline: str, *, colored: bool = True) -> None:
        super().__init__(pipeline)
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        self._stream = duplicated_stderr()
        self._live = Live(
            get_renderable=lambda: Text(f"  {self.line()}", style="dim", overflow="ellipsis", no_wrap=True),
            console=Console(file=self._stream, force_terminal=True, no_color=not colored),
            transient=True,
            refresh_per_second=4,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Progress:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        self._stream.close()


def progress_for(pipeline: str, output: Output) -> Progress:
    """Return the kind of progress that fits the output settings."""
    if not output.progress:
        return Progress(pipeline)
    if output.on_terminal and not output.json:
        return LiveProgress(pipeline, colored=output.colored)
    return PlainProgress(pipeline)


def seconds_left(rows: int, total: int, seconds: float) -> float:
    """Return how long the rest takes at the same rate, in seconds.

    >>> seconds_left(1000, 4000, 5.0)
    15.0
    """
    return (total - rows) / (rows / seconds)


def duplicated_stderr() -> IO[str]:
    """Return a duplicate of stderr: the engine redirects the original while the JVM starts."""
    try:
        return os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="replace")
    except (OSError, ValueError, AttributeError):  # stderr is not a file, as in a notebook
        return open(os.devnull, "w", encoding="utf-8")
