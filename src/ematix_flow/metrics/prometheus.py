"""Metrics for Prometheus to scrape: an HTTP endpoint `/metrics` on a port of this process."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

from ematix_flow.foundation.errors import ConfigError
from ematix_flow.foundation.packages import require_package
from ematix_flow.metrics import names
from ematix_flow.metrics.names import Metric
from ematix_flow.metrics.sinks import Sink

DEFAULT_PORT = 9100


class MetricsServer:
    """An HTTP endpoint `/metrics` with the metrics of a registry, served by a thread of this process."""

    def __init__(self, registry: Any, port: int, host: str) -> None:
        client = require_package("prometheus_client", what="serving metrics", extra="metrics-prometheus")
        try:
            self._server, self._thread = client.start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            busy = error.errno == errno.EADDRINUSE
            raise ConfigError(
                f"metrics cannot be served on {host}:{port}: {error.strerror}",
                hint="another process has that port; choose another" if busy else "check host and port",
            ) from None
        self.port = int(self._server.server_port)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


class PrometheusSink(Sink):
    """A sink with a registry of its own; with `http_port` it serves the metrics, with port 0 on a free one."""

    def __init__(self, *, http_port: int | None = None, registry: Any = None, host: str = "0.0.0.0") -> None:  # noqa: S104 - a scraper connects from another host
        client = require_package("prometheus_client", what="prometheus://", extra="metrics-prometheus")
        self.registry = registry if registry is not None else client.CollectorRegistry()
        kinds = {names.COUNTER: client.Counter, names.GAUGE: client.Gauge, names.HISTOGRAM: client.Histogram}
        self._metrics = {
            metric.name: _make_metric(kinds[metric.kind], metric, self.registry) for metric in names.METRICS
        }
        self._server = MetricsServer(self.registry, http_port, host) if http_port is not None else None
        self.port = self._server.port if self._server is not None else None
        """The port of the endpoint; None if nothing is served."""

    def add(self, metric: Metric, labels: Sequence[str], amount: float) -> None:
        self._metrics[metric.name].labels(*labels).inc(amount)

    def observe(self, metric: Metric, labels: Sequence[str], value: float) -> None:
        self._metrics[metric.name].labels(*labels).observe(value)

    def set(self, metric: Metric, labels: Sequence[str], value: float) -> None:
        self._metrics[metric.name].labels(*labels).set(value)

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.close()
            self._server = self.port = None


def _make_metric(kind: Any, metric: Metric, registry: Any) -> Any:
    more = {"buckets": metric.buckets} if metric.buckets else {}
    return kind(metric.name, metric.says, metric.labels, registry=registry, **more)
