"""Servers that watch: an OpenTelemetry collector that writes down what it gets, and Prometheus, which fetches."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import urllib.request
from pathlib import Path

from tests.services.built import Recipe, product
from tests.services.server import Account, Server, ServiceMissing, end, free_port, launch, wait_until_ready

_OURSELVES = Account(uid=None, gid=None)
_MANIFEST = Path(__file__).with_name("otelcol.yaml")
_BUILDER = "go.opentelemetry.io/collector/cmd/builder@v0.157.0"
_BUILD = (
    f"sed 's|FOLDER|{{folder}}|' '{_MANIFEST}' > '{{folder}}/manifest.yaml' && "
    f"go run {_BUILDER} --skip-strict-versioning --config '{{folder}}/manifest.yaml'"
)
OTELCOL = Recipe(
    name="otelcol",
    version="0.157.0",
    tool="sh",
    command=("-c", _BUILD),
    product="otelcol",
    environment={"GOFLAGS": "-p=1 -trimpath -buildvcs=false", "CGO_ENABLED": "0"},
)


def start_collector(folder: Path) -> tuple[Server, int, int, Path]:
    """A collector in `folder`, its gRPC and HTTP ports, and the file in which it writes down what it gets."""
    program, grpc, http = product(OTELCOL), free_port(), free_port()
    settings = {
        "receivers": {
            "otlp": {
                "protocols": {"grpc": {"endpoint": f"127.0.0.1:{grpc}"}, "http": {"endpoint": f"127.0.0.1:{http}"}}
            }
        },
        "exporters": {"debug": {"verbosity": "detailed"}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {signal: {"receivers": ["otlp"], "exporters": ["debug"]} for signal in ("traces", "metrics")},
        },
    }
    config = folder / "otelcol.yaml"
    config.write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML
    process = launch(
        [str(program), "--config", f"file:{config}"], account=_OURSELVES, folder=folder, death_signal=signal.SIGTERM
    )

    def connect() -> None:
        for port in (grpc, http):
            socket.create_connection(("127.0.0.1", port), 2).close()

    wait_until_ready(process, connect=connect, folder=folder)
    server = Server(url=f"http://127.0.0.1:{http}", stop=lambda: end(process, by=signal.SIGTERM))
    return server, grpc, http, folder / "server.log"


def prometheus_program(name: str = "prometheus") -> Path:
    """Prometheus, or its tool promtool."""
    found = shutil.which(name)
    if found is None:
        raise ServiceMissing("Prometheus is not installed; run: make services")
    return Path(found)


def start_prometheus(folder: Path, target: str, *, rules: Path | None = None) -> Server:
    """A Prometheus that fetches from `host:port` every second."""
    program, port = prometheus_program(), free_port()
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "scrape_configs": [{"job_name": "ematix-flow", "static_configs": [{"targets": [target]}]}],
        **({"rule_files": [str(rules)]} if rules is not None else {}),
    }
    config = folder / "prometheus.yml"
    config.write_text(json.dumps(settings), encoding="utf-8")
    process = launch(
        [
            *(str(program), f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"),
            *(f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"),
        ],
        account=_OURSELVES,
        folder=folder,
        death_signal=signal.SIGTERM,
    )
    url = f"http://127.0.0.1:{port}"

    def connect() -> None:
        urllib.request.urlopen(f"{url}/-/ready", timeout=2).close()

    wait_until_ready(process, connect=connect, folder=folder)
    return Server(url=url, stop=lambda: end(process, by=signal.SIGTERM))
