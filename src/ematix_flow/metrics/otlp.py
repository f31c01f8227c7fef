"""OTLP addresses: host and port of the collector, and the protocol, gRPC or HTTP."""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ematix_flow.declare.connections import urls
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.foundation.isolation import WarnOnce
from ematix_flow.foundation.packages import __version__, require_package

GRPC, HTTP = "grpc", "http"
GRPC_PORT, HTTP_PORT = 4317, 4318
SECONDS = 5
EXTRA = "metrics-otel"
_complaints = WarnOnce()
_ON = ("1", "true", "yes", "on")


@dataclass(frozen=True)
class OtlpCollector:
    """The address of a collector."""

    protocol: str
    host: str
    port: int
    tls: bool = False

    def endpoint(self, signal: str) -> str:
        """Return the endpoint for the exporter of a signal (`metrics`, `traces`)."""
        scheme = "https" if self.tls else "http"
        base = f"{scheme}://{self.host}:{self.port}"
        return f"{base}/v1/{signal}" if self.protocol == HTTP else base


def parse_collector(url: str, *, protocol: str | None = None) -> OtlpCollector:
    """Return the collector of `…://host[:port][?tls=1]`; by default, port 4318 means HTTP and any other gRPC.

    >>> parse_collector("otlp://parse_collector:4318").endpoint("traces")
    'http://parse_collector:4318/v1/traces'
    """
    try:
        parts = urls.split(urls.expand_url(url))
    except urls.UrlError as error:
        raise ConfigError(f"the address of the OpenTelemetry collector {error}") from None
    urls.refuse_parameters(parts, ("tls",), of="an OTLP address")
    spoken = protocol or (HTTP if parts.port == str(HTTP_PORT) else GRPC)
    if parts.port and not parts.port.isdigit():
        raise ConfigError("the port of an OTLP address is a number", hint="4317 for gRPC, 4318 for HTTP")
    port = int(parts.port) if parts.port else (HTTP_PORT if spoken == HTTP else GRPC_PORT)
    return OtlpCollector(spoken, parts.host or "localhost", port, parts.params.get("tls", "0").lower() in _ON)


def make_exporter(where: OtlpCollector, signal: str, *, what: str) -> Any:
    """Return the exporter of a signal to this collector."""
    kind = {"metrics": ("metric_exporter", "OTLPMetricExporter"), "traces": ("trace_exporter", "OTLPSpanExporter")}
    module, name = kind[signal]
    package = require_package(f"opentelemetry.exporter.otlp.proto.{where.protocol}.{module}", what=what, extra=EXTRA)
    more = {} if where.protocol == HTTP else {"insecure": not where.tls}
    made_exporter = getattr(package, name)(endpoint=where.endpoint(signal), timeout=SECONDS, **more)
    made_exporter.export = _warn_once(
        made_exporter.export, f"the OpenTelemetry collector at {where.host}:{where.port}", signal
    )
    return made_exporter


def _warn_once(export: Callable[..., Any], name: str, signal: str) -> Callable[..., Any]:
    """Return an export function that warns once about a failing collector, instead of a log line per attempt."""
    theirs = logging.getLogger("opentelemetry.exporter")
    if theirs.level == logging.NOTSET:
        theirs.setLevel(logging.CRITICAL)

    def exported(*args: Any, **kwargs: Any) -> Any:
        outcome = export(*args, **kwargs)
        if outcome.name == "SUCCESS":
            _complaints.clear(name)
        else:
            _complaints.warn(name, f"it did not take {signal}; is it running?")
        return outcome

    return exported


def make_resource(*, what: str) -> Any:
    """Return the resource that identifies this program and process."""
    resources = require_package("opentelemetry.sdk.resources", what=what, extra=EXTRA)
    own = {
        "service.name": os.environ.get("OTEL_SERVICE_NAME") or "ematix-flow",
        "service.version": __version__,
        "service.instance.id": str(uuid.uuid4()),
        "host.name": socket.gethostname(),
        "process.pid": os.getpid(),
    }
    return resources.Resource.create(own)
