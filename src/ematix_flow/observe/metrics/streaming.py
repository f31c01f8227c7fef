"""What Prometheus may fetch of a stream that runs."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ematix_flow.foundation.errors import ConfigError
from ematix_flow.observe.packages import need

PREFIX = "ematix_streaming_"
COUNTERS = {
    "rows_consumed_total": "Messages read.",
    "rows_written_total": "Rows written, added up over the targets.",
    "batches_total": "Micro-batches committed.",
    "errors_total": "Failures of a target or of the stream.",
    "dlq_writes_total": "Messages set aside as dead letters.",
    "idle_iterations_total": "Times the source was asked and had nothing.",
    "late_rows_dropped_total": "Rows that came too late for their window.",
    "restarts_total": "Restarts after an error.",
}
GAUGES = {
    "batch_duration_seconds": "How long the last micro-batch took.",
    "rows_per_second": "Rows of the last micro-batch by its time.",
    "watermark_delay_seconds": "How far the watermark lies behind the clock.",
    "state_rows": "Rows of state.",
    "state_bytes": "Memory of the state.",
    "targets_behind": "Micro-batches that targets have missed and will be given.",
}
PER_PART = {
    "lag_rows": "Messages that are there and not read yet.",
    "lag_seconds": "Age of the oldest message that is not read yet.",
}


class StreamMetrics:
    """Counts of one stream; served over HTTP where a port is named."""

    def __init__(self, pipeline: str) -> None:
        self.pipeline = pipeline
        self.values: dict[str, float] = dict.fromkeys((*COUNTERS, *GAUGES), 0.0)
        self.parts: dict[tuple[str, str], float] = {}

    def add(self, name: str, amount: float = 1.0) -> None:
        """Count up."""
        self.values[name] += amount

    def set(self, name: str, value: float) -> None:
        """Say how it is now."""
        self.values[name] = value

    def set_part(self, name: str, part: str, value: float) -> None:
        """The same of one part of the source."""
        self.parts[(name, part)] = value

    def collect(self) -> Iterator[Any]:
        """Prometheus asks here."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, says in COUNTERS.items():
            counter = CounterMetricFamily(PREFIX + name, says, labels=["pipeline"])
            counter.add_metric([self.pipeline], self.values[name])
            yield counter
        for name, says in GAUGES.items():
            gauge = GaugeMetricFamily(PREFIX + name, says, labels=["pipeline"])
            gauge.add_metric([self.pipeline], self.values[name])
            yield gauge
        for name, says in PER_PART.items():
            gauge = GaugeMetricFamily(PREFIX + name, says, labels=["pipeline", "part"])
            for (which, part), value in list(self.parts.items()):
                if which == name:
                    gauge.add_metric([self.pipeline, part], value)
            yield gauge

    def told(self) -> Mapping[str, Any]:
        """For the run log."""
        lag: dict[str, dict[str, float]] = {}
        for (name, part), value in self.parts.items():
            lag.setdefault(part, {})[name.removeprefix("lag_")] = value
        return {**self.values, "lag": lag}


@contextmanager
def serving(metrics: StreamMetrics, port: int | None, host: str = "127.0.0.1") -> Iterator[None]:
    """Serve `/metrics` while the stream runs."""
    if port is None:
        yield
        return
    client = need("prometheus_client", what="--metrics-port", extra="metrics-prometheus")
    registry = client.CollectorRegistry()
    registry.register(metrics)
    try:
        server, thread = client.start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        busy = error.errno == errno.EADDRINUSE
        raise ConfigError(
            f"metrics cannot be served on {host}:{port}: {error.strerror}",
            hint="another process has that port; choose another" if busy else "choose another port",
        ) from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)
