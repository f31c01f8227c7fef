"""Where metrics go: one protocol, three verbs behind it, and the sinks that need no package."""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol, TextIO, TypeVar, runtime_checkable

from ematix_flow.observe.metrics import names
from ematix_flow.observe.metrics.names import Metric

_V = TypeVar("_V")


@runtime_checkable
class MetricsSink(Protocol):
    """What a sink must offer; sinks of this package offer the methods of `Sink` as well."""

    def inc_runs(self, name: str, outcome: str) -> None:
        """A run of this pipeline ended so."""

    def observe_duration(self, name: str, secs: float) -> None:
        """A run took so long."""

    def set_attempt(self, name: str, count: int) -> None:
        """It has failed so often in a row."""

    def close(self) -> None:
        """Send what is left, and let go."""


class Sink(ABC):
    """A sink of this package: says what every measurement is called, and leaves to others where it goes."""

    @abstractmethod
    def add(self, metric: Metric, labels: Sequence[str], amount: float) -> None:
        """A counter grows."""

    @abstractmethod
    def observe(self, metric: Metric, labels: Sequence[str], value: float) -> None:
        """A histogram gets one more value."""

    @abstractmethod
    def set(self, metric: Metric, labels: Sequence[str], value: float) -> None:
        """A gauge stands at a value."""

    def close(self) -> None:
        """Send what is left, and let go."""
        return

    def inc_runs(self, name: str, outcome: str) -> None:
        """A run of this pipeline ended so."""
        self.add(names.RUNS, (name, outcome), 1)

    def observe_duration(self, name: str, secs: float) -> None:
        """A run took so long."""
        self.observe(names.DURATION, (name,), secs)

    def set_attempt(self, name: str, count: int) -> None:
        """It has failed so often in a row."""
        self.set(names.ATTEMPT, (name,), count)

    def observe_step(self, name: str, step: str, secs: float) -> None:
        """A step of a run took so long."""
        self.observe(names.STEP_DURATION, (name, step), secs)

    def add_rows(self, name: str, direction: str, count: int) -> None:
        """So many rows went `in`, `out` or were `rejected`."""
        self.add(names.ROWS, (name, direction), count)

    def add_bytes(self, name: str, direction: str, count: int) -> None:
        """So many bytes went `in` or `out`."""
        self.add(names.BYTES, (name, direction), count)

    def set_watermark_lag(self, name: str, secs: float) -> None:
        """The watermark lies so far behind the clock."""
        self.set(names.WATERMARK_LAG, (name,), secs)

    def set_last_success(self, name: str, at: float) -> None:
        """It last succeeded then."""
        self.set(names.LAST_SUCCESS, (name,), at)


class NullSink(Sink):
    """Drops everything."""

    def add(self, metric: Metric, labels: Sequence[str], amount: float) -> None:
        return None

    def observe(self, metric: Metric, labels: Sequence[str], value: float) -> None:
        return None

    def set(self, metric: Metric, labels: Sequence[str], value: float) -> None:
        return None


class InMemorySink(Sink):
    """Keeps everything in this process.

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
        """Runs by pipeline and outcome."""
        kept = self.values.get(names.RUNS.name, {})
        return {(labels[0], labels[1]): int(count) for labels, count in kept.items()}

    @property
    def durations(self) -> dict[str, list[float]]:
        """Seconds of every run, by pipeline."""
        return {labels[0]: list(values) for labels, values in self.observed.get(names.DURATION.name, {}).items()}

    @property
    def attempts(self) -> dict[str, int]:
        """Failures in a row, by pipeline."""
        return {labels[0]: int(value) for labels, value in self.values.get(names.ATTEMPT.name, {}).items()}


class StdoutSink(InMemorySink):
    """Writes everything down when it is closed or flushed; to stderr unless another stream is given."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__()
        self._stream = stream

    def flush(self) -> None:
        """Write what is known now."""
        told = [
            *(f"{_shown(name, labels)} {value:g}" for name, labels, value in _flat(self.values)),
            *(
                f"{_shown(name, labels)} count={len(values)} sum={sum(values):.3f} max={max(values):.3f}"
                for name, labels, values in _flat(self.observed)
            ),
        ]
        stream = self._stream or sys.stderr
        stream.write("".join(f"METRIC {line}\n" for line in sorted(told)))
        stream.flush()

    def close(self) -> None:
        """Write it down, and begin anew."""
        if self.values or self.observed:
            self.flush()
        self.values, self.observed = {}, {}


def _flat(kept: Mapping[str, Mapping[tuple[str, ...], _V]]) -> list[tuple[str, tuple[str, ...], _V]]:
    return [(name, labels, value) for name, by_labels in kept.items() for labels, value in by_labels.items()]


def _shown(name: str, labels: tuple[str, ...]) -> str:
    metric = next(metric for metric in names.METRICS if metric.name == name)
    pairs = ",".join(f'{label}="{value}"' for label, value in zip(metric.labels, labels, strict=True))
    return f"{name}{{{pairs}}}"
