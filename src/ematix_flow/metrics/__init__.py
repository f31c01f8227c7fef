"""Metrics sinks: where counts, durations and lags of runs go."""

from ematix_flow.observe.metrics.names import METRICS, Metric
from ematix_flow.observe.metrics.sinks import InMemorySink, MetricsSink, NullSink, Sink, StdoutSink
from ematix_flow.observe.metrics.urls import from_url

__all__ = ["METRICS", "InMemorySink", "Metric", "MetricsSink", "NullSink", "Sink", "StdoutSink", "from_url"]
