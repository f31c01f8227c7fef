"""External monitoring of a stream: scrapes its counters at intervals, and records their rates in the run log."""

from __future__ import annotations

import re
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ematix_flow.foundation.clock import now
from ematix_flow.foundation.redact import mask
from ematix_flow.metrics.streaming import COUNTERS, PREFIX
from ematix_flow.run_log.records import RunRecord, to_text

if TYPE_CHECKING:
    from ematix_flow.run_log.protocol import RunHistoryStore

_LINE = re.compile(r"^(\w+)\{([^}]*)\}\s+([-+0-9.eE]+|NaN|[+-]?Inf)\s*$")
_PACES = {
    "rows_consumed_per_sec": "rows_consumed_total",
    "rows_written_per_sec": "rows_written_total",
    "batches_per_sec": "batches_total",
    "errors_per_sec": "errors_total",
}
_SHORT = ("rows_consumed_total", "rows_written_total")
_TIMEOUT_SECONDS = 3.0


@dataclass(frozen=True)
class CounterSample:
    """The counters of a stream at one moment of the monotonic clock."""

    at: float
    counters: Mapping[str, float] = field(default_factory=dict)


def make_streaming_run_id(pipeline_name: str, started_at: datetime) -> str:
    """Return a new run id for a stream."""
    return f"{pipeline_name}-stream-{started_at:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"


def scrape_counters(metrics_url: str, pipeline_name: str) -> CounterSample | None:
    """Return the counters of a stream from its metrics; None if the endpoint fails or has none of this stream."""
    if not metrics_url.startswith(("http://", "https://")):
        return None
    try:
        with urllib.request.urlopen(metrics_url, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310  http only, see above
            text = answer.read().decode("utf-8", "replace")
    except (OSError, urllib.error.URLError, ValueError):
        return None
    counters = dict[str, float]()
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is not None and match[1].startswith(PREFIX) and f'pipeline="{pipeline_name}"' in match[2]:
            name = match[1].removeprefix(PREFIX)
            if name in COUNTERS:
                counters[name] = float(match[3])
    return CounterSample(time.monotonic(), counters) if counters else None


def summarize_window(samples: deque[CounterSample], *, now: float, window_seconds: float) -> dict[str, float | None]:
    """Return the rates of a stream in the last seconds; None for each with fewer than two samples."""
    inside = [sample for sample in samples if now - sample.at <= window_seconds]
    empty: dict[str, float | None] = dict.fromkeys((*_PACES, "avg_batch_cycle_ms", "span_seconds"))
    if len(inside) < 2 or inside[-1].at <= inside[0].at:
        return empty
    first, last = inside[0], inside[-1]
    span = last.at - first.at
    # A restarted stream counts from zero again.
    grown = {name: max(0.0, last.counters.get(name, 0.0) - first.counters.get(name, 0.0)) for name in _PACES.values()}
    batches = grown["batches_total"]
    paces: dict[str, float | None] = {pace: grown[name] / span for pace, name in _PACES.items()}
    return {**paces, "avg_batch_cycle_ms": span * 1000 / batches if batches else None, "span_seconds": span}


class StreamingStatsRecorder:
    """A context manager that records a run of a stream in a run log while the block runs."""

    def __init__(
        self,
        *,
        run_log: RunHistoryStore,
        pipeline_name: str,
        metrics_port: int,
        metrics_host: str = "127.0.0.1",
        interval_seconds: float = 30.0,
        window_1m_seconds: float = 60.0,
        window_5m_seconds: float = 300.0,
        max_samples: int = 32,
        counted_as: str | None = None,
    ) -> None:
        self._run_log, self._name = run_log, pipeline_name
        self._counted_as = counted_as or pipeline_name  # the stream's own name, if its run record has another
        self._url = f"http://{metrics_host}:{metrics_port}/metrics"
        self._interval = interval_seconds
        self._windows = {"stats_1m": window_1m_seconds, "stats_5m": window_5m_seconds}
        self._samples: deque[CounterSample] = deque(maxlen=max_samples)
        self._began = now()
        self._run_id = make_streaming_run_id(pipeline_name, self._began)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def run_id(self) -> str:
        """Return the id of the run."""
        return self._run_id

    def start(self) -> str:
        """Record that the stream runs, start the scraping thread, and return the run id."""
        if self._thread is not None:
            raise RuntimeError(f"the run {self._run_id} is followed already")
        self._write("running")
        self._thread = threading.Thread(target=self._follow, name="flow-stream-stats", daemon=True)
        self._thread.start()
        return self._run_id

    def close(self, *, success: bool, error: str | None = None) -> None:
        """Stop the thread and record the outcome."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=_TIMEOUT_SECONDS + 1)
        self._sample()
        self._write("succeeded" if success else "failed", error)

    def __enter__(self) -> StreamingStatsRecorder:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(success=error is None, error=mask(str(error)) if error is not None else None)

    def _follow(self) -> None:
        while not self._ended.wait(self._interval):
            self._sample()
            self._write("running")

    def _sample(self) -> None:
        counters = scrape_counters(self._url, self._counted_as)
        if counters is not None:
            self._samples.append(counters)

    def _write(self, status: str, error: str | None = None) -> None:
        ended = now() if status != "running" else None
        extras: dict[str, Any] = {"snapshot_at": to_text(now())}
        if self._samples:
            counters = self._samples[-1].counters
            extras |= dict(counters) | {
                name.removesuffix("_total"): counters[name] for name in _SHORT if name in counters
            }
        clock = time.monotonic()
        extras |= {
            name: summarize_window(self._samples, now=clock, window_seconds=span)
            for name, span in self._windows.items()
        }
        with suppress(Exception):  # a history that cannot be written, even a user-defined one, must not fail the stream
            self._run_log.record_run_record(
                RunRecord(
                    self._run_id,
                    self._name,
                    status,
                    self._began,
                    ended,
                    error_summary=error,
                    kind="streaming",
                    extras=extras,
                )
            )
