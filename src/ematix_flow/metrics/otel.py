"""Metrics for OpenTelemetry."""

from ematix_flow.observe.metrics.otel import OtelSink

__all__ = ["OtelSink"]
