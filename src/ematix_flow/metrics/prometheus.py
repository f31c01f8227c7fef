"""Metrics for Prometheus."""

from ematix_flow.observe.metrics.prometheus import PrometheusSink

__all__ = ["PrometheusSink"]
