"""Progress of a stream: one live line on a terminal; in a log at most one line every ten seconds, when rows arrived."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from ematix_flow.cli.render.output import Output
from ematix_flow.cli.render.progress import SECONDS_BETWEEN_LINES, LiveProgress

STEP = "stream"


class StreamProgress:
    """A callable that receives the progress of each micro-batch from Spark and shows the totals."""

    def __init__(self, name: str, output: Output, *, every: float = SECONDS_BETWEEN_LINES) -> None:
        self._name, self._output, self._every = name, output, every
        self._rows = self._batches = self._printed_at = 0
        self._since = time.monotonic()
        self._open = ExitStack()
        self._live: LiveProgress | None = None

    def __enter__(self) -> StreamProgress:
        if self._output.progress and self._output.on_terminal and not self._output.json:
            self._live = LiveProgress(self._name, colored=self._output.colored)
            self._open.enter_context(self._live)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def __call__(self, progress: Mapping[str, Any]) -> None:
        rows = int(progress.get("numInputRows") or 0)
        self._rows += rows
        self._batches += bool(rows)
        if self._live is not None:
            from ematix_flow.engine.batch.result import ProgressEvent

            self._live(ProgressEvent(self._name, STEP, f"{self._batches:,} batches", self._rows))
        elif self._output.progress:
            self._line()

    def _line(self) -> None:
        seconds = time.monotonic() - self._since
        if self._rows == self._printed_at or seconds < self._every:
            return
        pace = (self._rows - self._printed_at) / seconds
        self._output.info(f"{self._name}: {self._rows:,} rows in {self._batches:,} batches, {pace:,.0f} rows/s")
        self._printed_at, self._since = self._rows, time.monotonic()
