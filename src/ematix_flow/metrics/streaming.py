"""Metrics of a running stream, which Prometheus can scrape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from ematix_flow.foundation.packages import require_package
from ematix_flow.metrics.prometheus import MetricsServer

if TYPE_CHECKING:
    from ematix_flow.contract.stream import PartitionLag

PREFIX = "ematix_streaming_"
COUNTERS = {
    "rows_consumed_total": "Messages read.",
    "rows_written_total": "Rows written, added up over the targets.",
    "batches_total": "Micro-batches committed.",
    "errors_total": "Failures of a target or of the stream.",
    "dlq_writes_total": "Messages set aside as dead letters.",
    "idle_iterations_total": "Polls of the source that returned nothing.",
    "late_rows_dropped_total": "Rows that came too late for their window or their partner.",
    "windows_emitted_total": "Rows that came out of windows and joins.",
    "restarts_total": "Restarts after an error.",
    "cdc_creates_total": "Changes that create rows, or contain them in a snapshot.",
    "cdc_updates_total": "Changes that update rows.",
    "cdc_deletes_total": "Changes that delete rows.",
    "cdc_skipped_total": "Messages left out: tombstones, and operations that are none.",
    "cdc_idempotent_skipped_total": "Changes left out because the target knows newer ones of their keys.",
}
GAUGES = {
    "batch_duration_seconds": "How long the last micro-batch took.",
    "rows_per_second": "Rows of the last micro-batch by its time.",
    "watermark_delay_seconds": "How far the watermark lies behind the clock.",
    "state_rows": "Rows of state.",
    "state_groups_total": "Groups of open windows and sessions; one may count twice until the state is compacted.",
    "windows_active": "The same for windows and sessions alone, 0 for a join.",
    "state_bytes": "Bytes of state, as they are kept.",
    "targets_behind": "Micro-batches that targets have missed and will be given.",
    "dlq_depth": "Dead letters of the stream that wait, are being replayed or are parked.",
}
_NOT_KNOWN_AT_FIRST = ("dlq_depth",)
"""Metrics that are left out until they are first set, instead of being reported as zero."""
PER_PART = {
    "lag_rows": "Messages that are there and not read yet.",
    "lag_seconds": "Age of the oldest message that is not read yet.",
}
PER_SOURCE = {"watermark_seconds": "The watermark of every source, and of all as `_global`."}


class StreamMetrics:
    """The metrics of one stream, served over HTTP if a port is configured."""

    def __init__(self, pipeline: str, late_policy: str = "drop") -> None:
        self.pipeline = pipeline
        self.late_policy = late_policy
        """The handling of late rows: a label of their counter."""
        known = (name for name in (*COUNTERS, *GAUGES) if name not in _NOT_KNOWN_AT_FIRST)
        self.values: dict[str, float] = dict.fromkeys(known, 0.0)
        self.lag: Sequence[PartitionLag] = ()
        self.watermarks: Mapping[str, float] = {}
        """The watermark of every source, and of all together as `_global`."""

    def add(self, name: str, amount: float = 1.0) -> None:
        """Increase a counter."""
        self.values[name] += amount

    def set(self, name: str, value: float) -> None:
        """Set a gauge."""
        self.values[name] = value

    def collect(self) -> Iterator[Any]:
        """Yield all metrics; called by the Prometheus client for each scrape."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, says in COUNTERS.items():
            more = {"policy": self.late_policy} if name == "late_rows_dropped_total" else {}
            counter = CounterMetricFamily(PREFIX + name, says, labels=["pipeline", *more])
            counter.add_metric([self.pipeline, *more.values()], self.values[name])
            yield counter
        for name, says in GAUGES.items():
            if name in self.values:
                gauge = GaugeMetricFamily(PREFIX + name, says, labels=["pipeline"])
                gauge.add_metric([self.pipeline], self.values[name])
                yield gauge
        lag = self._lag()
        for name, says in PER_PART.items():
            gauge = GaugeMetricFamily(PREFIX + name, says, labels=["pipeline", "part"])
            for part, figures in lag.items():
                if name.removeprefix("lag_") in figures:
                    gauge.add_metric([self.pipeline, part], figures[name.removeprefix("lag_")])
            yield gauge
        for name, says in PER_SOURCE.items() if self.watermarks else ():
            gauge = GaugeMetricFamily(PREFIX + name, says, labels=["pipeline", "source"])
            for source, at in self.watermarks.items():
                gauge.add_metric([self.pipeline, source], at)
            yield gauge

    def to_extras(self) -> Mapping[str, Any]:
        """Return the values for the run log."""
        return {**self.values, "lag": self._lag()}

    def _lag(self) -> dict[str, dict[str, float]]:
        """Return the lag by partition, without the figures that a source does not report."""
        figures = {item.part: {"rows": item.rows, "seconds": item.seconds} for item in self.lag}
        return {
            part: {name: float(value) for name, value in those.items() if value is not None}
            for part, those in figures.items()
        }


@contextmanager
def serve_metrics(metrics: StreamMetrics, port: int | None, host: str = "127.0.0.1") -> Iterator[None]:
    """Serve `/metrics` while the block runs; without a port, do nothing."""
    if port is None:
        yield
        return
    client = require_package("prometheus_client", what="--metrics-port", extra="metrics-prometheus")
    registry = client.CollectorRegistry()
    registry.register(metrics)
    with closing(MetricsServer(registry, port, host)):
        yield
