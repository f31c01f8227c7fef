"""Metrics sinks: destinations of counts, durations and lags of runs."""

from typing import TYPE_CHECKING, Any

from ematix_flow.observe.metrics.names import METRICS, Metric
from ematix_flow.observe.metrics.sinks import InMemorySink, MetricsSink, NullSink, Sink, StdoutSink
from ematix_flow.observe.metrics.urls import from_url

if TYPE_CHECKING:
    from ematix_flow.observe.metrics.otel import OtelSink
    from ematix_flow.observe.metrics.prometheus import PrometheusSink

__all__ = [
    "METRICS", "InMemorySink", "Metric", "MetricsSink", "NullSink", "OtelSink", "PrometheusSink", "Sink", "StdoutSink",
    "from_url",
]  # fmt: skip
_LAZY = {"OtelSink": "ematix_flow.observe.metrics.otel", "PrometheusSink": "ematix_flow.observe.metrics.prometheus"}


def __getattr__(name: str) -> Any:
    # Each needs an optional package.
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
