"""Metrics sinks: the protocol, the base class with three operations to implement, and the simple sinks."""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol, TextIO, TypeVar, runtime_checkable

from ematix_flow.metrics import names
from ematix_flow.metrics.names import Metric

_V = TypeVar("_V")


@runtime_checkable
class MetricsSink(Protocol):
    """The methods that a sink must have; sinks of this package also have those of `Sink`."""

    def inc_runs(self, name: str, outcome: str) -> None:
        """Count a run of this pipeline with its outcome."""

    def observe_duration(self, name: str, secs: float) -> None:
        """Record the duration of a run in seconds."""

    def set_attempt(self, name: str, count: int) -> None:
        """Set the number of consecutive failures."""

    def close(self) -> None:
        """Send the remaining values and close."""


class Sink(ABC):
    """The base of this package's sinks: it names every measurement; subclasses implement the destination."""

    @abstractmethod
    def add(self, metric: Metric, labels: Sequence[str], amount: float) -> None:
        """Increase a counter."""

    @abstractmethod
    def observe(self, metric: Metric, labels: Sequence[str], value: float) -> None:
        """Add a value to a histogram."""

    @abstractmethod
    def set(self, metric: Metric, labels: Sequence[str], value: float) -> None:
        """Set a gauge."""

    def close(self) -> None:
        """Send the remaining values and close."""
        return

    def inc_runs(self, name: str, outcome: str) -> None:
        """Count a run of this pipeline with its outcome."""
        self.add(names.RUNS, (name, outcome), 1)

    def observe_duration(self, name: str, secs: float) -> None:
        """Record the duration of a run in seconds."""
        self.observe(names.DURATION, (name,), secs)

    def set_attempt(self, name: str, count: int) -> None:
        """Set the number of consecutive failures."""
        self.set(names.ATTEMPT, (name,), count)

    def observe_step(self, name: str, step: str, secs: float) -> None:
        """Record the duration of a step in seconds."""
        self.observe(names.STEP_DURATION, (name, step), secs)

    def add_rows(self, name: str, direction: str, count: int) -> None:
        """Count rows with the direction `in`, `out` or `rejected`."""
        self.add(names.ROWS, (name, direction), count)

    def add_bytes(self, name: str, direction: str, count: int) -> None:
        """Count bytes with the direction `in` or `out`."""
        self.add(names.BYTES, (name, direction), count)

    def set_watermark_lag(self, name: str, secs: float) -> None:
        """Set the seconds by which the watermark is behind the clock."""
        self.set(names.WATERMARK_LAG, (name,), secs)

    def set_last_success(self, name: str, at: float) -> None:
        """Set the time of the last success, in seconds since 1970."""
        self.set(names.LAST_SUCCESS, (name,), at)


class NullSink(Sink):
    """A sink that discards everything."""

    def add(self, metric: Metric, labels: Sequence[str], amount: float) -> None:
        return None

    def observe(self, metric: Metric, labels: Sequence[str], value: float) -> None:
        return None

    def set(self, metric: Metric, labels: Sequence[str], value: float) -> None:
        return None


class InMemorySink(Sink):
    """A sink that keeps everything in this process.

    >>> sink = InMemorySink()
    >>> sink.inc_runs("orders", "success")
    >>> sink.counters
    {('orders', 'success'): 1}
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.values: dict[str, dict[tuple[str, ...], float]] = {}
        """Counters and gauges by metric and labels."""
        self.observed: dict[str, dict[tuple[str, ...], list[float]]] = {}
        """Histograms by metric and labels."""

    def add(self, metric: Metric, labels: Sequence[str], amount: float) -> None:
        with self._lock:
            kept = self.values.setdefault(metric.name, {})
            kept[tuple(labels)] = kept.get(tuple(labels), 0) + amount

    def observe(self, metric: Metric, labels: Sequence[str], value: float) -> None:
        with self._lock:
            self.observed.setdefault(metric.name, {}).setdefault(tuple(labels), []).append(value)

    def set(self, metric: Metric, labels: Sequence[str], value: float) -> None:
        with self._lock:
            self.values.setdefault(metric.name, {})[tuple(labels)] = value

    @property
    def counters(self) -> dict[tuple[str, str], int]:
        """Return the runs by pipeline and outcome."""
        with self._lock:
            kept = self.values.get(names.RUNS.name, {})
            return {(labels[0], labels[1]): int(count) for labels, count in kept.items()}

    @property
    def durations(self) -> dict[str, list[float]]:
        """Return the seconds of every run, by pipeline."""
        with self._lock:
            return {labels[0]: list(values) for labels, values in self.observed.get(names.DURATION.name, {}).items()}

    @property
    def attempts(self) -> dict[str, int]:
        """Return the consecutive failures, by pipeline."""
        with self._lock:
            return {labels[0]: int(value) for labels, value in self.values.get(names.ATTEMPT.name, {}).items()}


class StdoutSink(InMemorySink):
    """A sink that writes all values when it is closed or flushed, to stderr or a given stream."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__()
        self._stream = stream

    def flush(self) -> None:
        """Write all current values."""
        with self._lock:
            lines = self._lines()
        self._write(lines)

    def close(self) -> None:
        """Write all values, and reset them."""
        with self._lock:  # a value that comes in between would be neither written nor kept
            lines = self._lines()
            self.values, self.observed = {}, {}
        if lines:
            self._write(lines)

    def _lines(self) -> list[str]:
        return [
            *(f"{_label_text(name, labels)} {value:g}" for name, labels, value in _flattened(self.values)),
            *(
                f"{_label_text(name, labels)} count={len(values)} sum={sum(values):.3f} max={max(values):.3f}"
                for name, labels, values in _flattened(self.observed)
            ),
        ]

    def _write(self, lines: list[str]) -> None:
        stream = self._stream or sys.stderr
        stream.write("".join(f"METRIC {line}\n" for line in sorted(lines)))
        stream.flush()


def _flattened(kept: Mapping[str, Mapping[tuple[str, ...], _V]]) -> list[tuple[str, tuple[str, ...], _V]]:
    return [(name, labels, value) for name, by_labels in kept.items() for labels, value in by_labels.items()]


def _label_text(name: str, labels: tuple[str, ...]) -> str:
    metric = next(metric for metric in names.METRICS if metric.name == name)
    pairs = ",".join(f'{label}="{value}"' for label, value in zip(metric.labels, labels, strict=True))
    return f"{name}{{{pairs}}}"
