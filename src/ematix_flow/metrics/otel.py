"""Metrics for OpenTelemetry: pushed to a collector every 15 seconds, and once more when the process ends."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from ematix_flow.foundation.packages import require_package
from ematix_flow.metrics import names, otlp
from ematix_flow.metrics.names import Metric
from ematix_flow.metrics.sinks import Sink

WHAT = "an otlp:// metrics sink"
_EVERY_MILLISECONDS = 15_000


class OtelSink(Sink):
    """A sink that sends to a collector at `endpoint` (`host:port`), by gRPC unless `protocol` is http."""

    def __init__(self, *, endpoint: str = "localhost:4317", protocol: str = otlp.GRPC, tls: bool = False,
                 _reader: Any = None) -> None:  # fmt: skip
        sdk = require_package("opentelemetry.sdk.metrics", what=WHAT, extra=otlp.EXTRA)
        view = require_package("opentelemetry.sdk.metrics.view", what=WHAT, extra=otlp.EXTRA)
        bounds = [
            view.View(
                instrument_name=metric.name,
                aggregation=view.ExplicitBucketHistogramAggregation(boundaries=metric.buckets),
            )
            for metric in names.METRICS
            if metric.buckets
        ]
        reader = _reader if _reader is not None else _periodic(otlp.parse_collector(f"otlp://{endpoint}" + ("?tls=1" if tls else ""), protocol=protocol))  # fmt: skip
        self._provider = sdk.MeterProvider(
            metric_readers=[reader], resource=otlp.make_resource(what=WHAT), views=bounds, shutdown_on_exit=False
        )
        meter = self._provider.get_meter("ematix_flow")
        makers = {
            names.COUNTER: meter.create_counter,
            names.GAUGE: meter.create_gauge,
            names.HISTOGRAM: meter.create_histogram,
        }
        self._instruments = {
            metric.name: makers[metric.kind](metric.name, unit=metric.unit or "1", description=metric.says)
            for metric in names.METRICS
        }
        self._closing = threading.Lock()
        self._closed = False

    def add(self, metric: Metric, labels: Sequence[str], amount: float) -> None:
        self._instruments[metric.name].add(amount, _named(metric, labels))

    def observe(self, metric: Metric, labels: Sequence[str], value: float) -> None:
        self._instruments[metric.name].record(value, _named(metric, labels))

    def set(self, metric: Metric, labels: Sequence[str], value: float) -> None:
        self._instruments[metric.name].set(value, _named(metric, labels))

    def flush(self) -> None:
        """Send all current values now."""
        self._provider.force_flush(timeout_millis=otlp.SECONDS * 1000)

    def close(self) -> None:
        """Send the remaining values, for a few seconds at most, and close."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._provider.shutdown(timeout_millis=otlp.SECONDS * 1000)


def _periodic(where: otlp.OtlpCollector) -> Any:
    export = require_package("opentelemetry.sdk.metrics.export", what=WHAT, extra=otlp.EXTRA)
    return export.PeriodicExportingMetricReader(
        otlp.make_exporter(where, "metrics", what=WHAT),
        export_interval_millis=_EVERY_MILLISECONDS,
        export_timeout_millis=otlp.SECONDS * 1000,
    )


def _named(metric: Metric, labels: Sequence[str]) -> dict[str, str]:
    return dict(zip(metric.labels, labels, strict=True))
