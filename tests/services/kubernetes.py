"""A Kubernetes API server on its own etcd: it keeps jobs and checks them, and has nobody who would run them."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from tests.services.built import Recipe, product
from tests.services.server import Account, end, free_port, launch, run_once, wait_until_ready

VERSION = "1.33.4"
_OURSELVES = Account(uid=None, gid=None)
_SCRIPT = Path(__file__).with_name("kubernetes.sh")
_TOKEN = "the-token-of-the-tests"
KUBERNETES = Recipe(
    name="kubernetes",
    version=VERSION,
    tool="sh",
    command=(str(_SCRIPT), "{folder}", VERSION),
    product="kube-apiserver",
    environment={"GOFLAGS": "-p=2 -trimpath -buildvcs=false", "CGO_ENABLED": "0"},
)


@dataclass(frozen=True)
class Kubernetes:
    """A running API server, and the kubeconfig of somebody who may do everything there."""

    kubeconfig: Path
    processes: tuple[subprocess.Popen[bytes], ...]

    def stop(self) -> None:
        for process in self.processes:
            end(process, by=signal.SIGTERM)


def start_kubernetes(folder: Path) -> Kubernetes:
    """With role-based access control, on loopback only."""
    apiserver = product(KUBERNETES)
    store = _start_etcd(apiserver.with_name("etcd"), folder / "etcd")
    home, port = folder / "apiserver", free_port()
    home.mkdir()
    run_once(["openssl", "genrsa", "-out", "account.key", "2048"], account=_OURSELVES, folder=home)
    (home / "tokens.csv").write_text(f'{_TOKEN},admin,1,"system:masters"\n')
    process = launch(
        [
            *(str(apiserver), f"--etcd-servers={store[1]}", "--bind-address=127.0.0.1", f"--secure-port={port}"),
            *("--advertise-address=127.0.0.1", "--cert-dir=certificates", "--token-auth-file=tokens.csv"),
            *("--service-account-issuer=https://127.0.0.1", "--service-account-key-file=account.key"),
            *("--service-account-signing-key-file=account.key", "--authorization-mode=RBAC"),
            *("--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount"),
        ],
        account=_OURSELVES,
        folder=home,
        death_signal=signal.SIGTERM,
    )
    url = f"https://127.0.0.1:{port}"
    wait_until_ready(process, connect=lambda: _ask(url), folder=home)
    return Kubernetes(_kubeconfig(folder, url, home / "certificates" / "apiserver.crt"), (process, store[0]))


def _start_etcd(program: Path, folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    folder.mkdir()
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    process = launch(
        [
            *(str(program), "--data-dir", "data", "--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}", "--unsafe-no-fsync"),
        ],
        account=_OURSELVES,
        folder=folder,
        death_signal=signal.SIGTERM,
    )
    wait_until_ready(
        process, connect=lambda: urllib.request.urlopen(f"{client}/health", timeout=2).close(), folder=folder
    )
    return process, client


def _ask(url: str) -> None:
    asked = urllib.request.Request(f"{url}/readyz", headers={"Authorization": f"Bearer {_TOKEN}"})
    context = ssl._create_unverified_context()
    urllib.request.urlopen(asked, timeout=2, context=context).close()


def _kubeconfig(folder: Path, url: str, certificate: Path) -> Path:
    written = folder / "kubeconfig"
    known = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": {"server": url, "certificate-authority": str(certificate)}}],
        "users": [{"name": "admin", "user": {"token": _TOKEN}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
        "current-context": "tests",
    }
    written.write_text(json.dumps(known))  # JSON is YAML
    return written
