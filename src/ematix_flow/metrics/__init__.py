"""Metrics sinks: where counts, durations and lags of runs go."""

from typing import TYPE_CHECKING

from ematix_flow.foundation.names import lazy_exports

if TYPE_CHECKING:
    from ematix_flow.metrics.names import METRICS, Metric
    from ematix_flow.metrics.otel import OtelSink
    from ematix_flow.metrics.prometheus import PrometheusSink
    from ematix_flow.metrics.sinks import InMemorySink, MetricsSink, NullSink, Sink, StdoutSink
    from ematix_flow.metrics.urls import from_url

__all__ = [
    "METRICS",
    "InMemorySink",
    "Metric",
    "MetricsSink",
    "NullSink",
    "OtelSink",
    "PrometheusSink",
    "Sink",
    "StdoutSink",
    "from_url",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "METRICS": "ematix_flow.metrics.names",
        "InMemorySink": "ematix_flow.metrics.sinks",
        "Metric": "ematix_flow.metrics.names",
        "MetricsSink": "ematix_flow.metrics.sinks",
        "NullSink": "ematix_flow.metrics.sinks",
        "OtelSink": "ematix_flow.metrics.otel",
        "PrometheusSink": "ematix_flow.metrics.prometheus",
        "Sink": "ematix_flow.metrics.sinks",
        "StdoutSink": "ematix_flow.metrics.sinks",
        "from_url": "ematix_flow.metrics.urls",
    },
)
