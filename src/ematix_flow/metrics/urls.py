"""Metrics sinks from their addresses."""

from __future__ import annotations

from ematix_flow.declare.connections import urls
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.metrics import otlp
from ematix_flow.metrics.sinks import InMemorySink, MetricsSink, NullSink, Sink, StdoutSink

SCHEMES = ("null", "stdout", "memory", "prometheus", "otlp", "otlp+grpc", "otlp+http")
_PLAIN: dict[str, type[Sink]] = {"null": NullSink, "stdout": StdoutSink, "memory": InMemorySink}


def from_url(url: str) -> MetricsSink:
    """Return the sink at `null://`, `stdout://`, `memory://`, `prometheus://[host]:port` or `otlp://host:port`.

    >>> type(from_url("memory://")).__name__
    'InMemorySink'
    """
    scheme = urls.scheme_of(url.strip())
    if scheme not in SCHEMES or "://" not in url:
        raise ConfigError("no metrics sink has that address", hint=urls.scheme_hint(scheme, SCHEMES))
    if scheme in _PLAIN:
        return _PLAIN[scheme]()
    return _prometheus(url.strip()) if scheme == "prometheus" else _otel(url.strip(), scheme)


def _prometheus(url: str) -> Sink:
    from ematix_flow.metrics.prometheus import DEFAULT_PORT, PrometheusSink

    address = url.partition("://")[2].partition("/")[0]
    host, _, port = address.rpartition(":") if ":" in address else (address, "", "")
    if port and (not port.isdigit() or int(port) > 65535):
        raise ConfigError("prometheus:// has no such port", hint="write prometheus://:9100")
    where = {"host": host.strip("[]")} if host else {}
    return PrometheusSink(http_port=int(port) if port else DEFAULT_PORT, **where)


def _otel(url: str, scheme: str) -> Sink:
    from ematix_flow.metrics.otel import OtelSink

    protocol = scheme.partition("+")[2]
    where = otlp.parse_collector(url, protocol=protocol or None)
    return OtelSink(endpoint=f"{where.host}:{where.port}", protocol=where.protocol, tls=where.tls)
