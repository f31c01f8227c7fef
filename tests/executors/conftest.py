"""A project in a folder of its own for every test, and a Kubernetes API server for those that ask for one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ematix_flow.declare import registry
from ematix_flow.foundation import redact
from tests.executors.sample import write_project
from tests.services.kubernetes import Kubernetes, start_kubernetes
from tests.services.wanted import or_skip

_SETTINGS = ("EMATIX_FLOW_", "AWS_", "KUBE", "SPARK_", "PYSPARK_")
_KEPT = ("EMATIX_FLOW_TEST_SERVICES", "EMATIX_FLOW_CACHE")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home, a project as working directory, and nothing known from before."""
    monkeypatch.setenv(
        "EMATIX_FLOW_CACHE", os.environ.get("EMATIX_FLOW_CACHE") or str(Path.home() / ".cache" / "ematix-flow")
    )
    for name in list(os.environ):
        if name.startswith(_SETTINGS) and name not in _KEPT:
            monkeypatch.delenv(name)
    folder = tmp_path / "project"
    folder.mkdir()
    write_project(folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EMATIX_FLOW_LOGS_DIR", str(tmp_path / "logs"))
    _forget()
    yield folder
    _forget()


def _forget() -> None:
    registry.clear()
    redact.forget_secrets()


@pytest.fixture(scope="session")
def kubernetes_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """A real API server; nobody there starts pods."""
    server = or_skip(lambda: start_kubernetes(tmp_path_factory.mktemp("kubernetes")))
    yield server
    server.stop()


@pytest.fixture
def cluster(kubernetes_server: Kubernetes, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of somebody who may do everything; the executor finds the same server by its kubeconfig."""
    from kubernetes import client, config

    monkeypatch.setenv("KUBECONFIG", str(kubernetes_server.kubeconfig))
    known = client.Configuration()
    config.load_kube_config(config_file=str(kubernetes_server.kubeconfig), client_configuration=known)
    return client.ApiClient(known)


@pytest.fixture
def namespace(cluster: Any, request: pytest.FixtureRequest) -> str:
    """A namespace of its own for every test."""
    from kubernetes import client

    name = f"t-{abs(hash(request.node.nodeid)):x}"[:40]
    client.CoreV1Api(cluster).create_namespace({"metadata": {"name": name}})
    return name
