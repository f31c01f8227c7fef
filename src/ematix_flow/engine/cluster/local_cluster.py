"""A standalone cluster on this machine for trials and tests: a master and workers of this user, on loopback only.

`flow cluster start` records its processes; `flow cluster stop` ends exactly these. Every process of the cluster, and
every client, needs a secret that only this user can read.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ematix_flow.foundation import redact
from ematix_flow.run_log.worker import is_dead
from ematix_flow.storage.file_locks import locked_file

FOLDER_VARIABLE = "EMATIX_FLOW_CLUSTER_DIR"
HOST = "127.0.0.1"
_FILE, _SECRET, _LOCK = "cluster.json", "secret", "lock"


@dataclass(frozen=True)
class ClusterProcess:
    """One process of the cluster; `worker` identifies it even after its process id was reused."""

    worker: str
    log: str

    @property
    def pid(self) -> int:
        """Return the process id."""
        return int(self.worker.split(":")[1])

    @property
    def is_alive(self) -> bool:
        """Return whether the process runs."""
        return not is_dead(self.worker)


@dataclass(frozen=True)
class LocalCluster:
    """A master, its workers, and the cores and memory of each worker."""

    master: ClusterProcess
    workers: tuple[ClusterProcess, ...]
    port: int
    ui_port: int
    cores: int
    memory: str
    started_at: float

    @property
    def address(self) -> str:
        """Return the address for `peers=`."""
        return f"spark://{HOST}:{self.port}"

    @property
    def is_alive(self) -> bool:
        """Return whether the cluster runs, which means its master does."""
        return self.master.is_alive

    def living(self) -> tuple[ClusterProcess, ...]:
        """Return the running workers."""
        return tuple(member for member in self.workers if member.is_alive)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for display, with the master's status of its workers where it answers."""
        status = master_status(self) or {}
        return {
            "address": self.address,
            "alive": self.is_alive,
            "ui": f"http://{HOST}:{self.ui_port}",
            "pid": self.master.pid,
            "workers": [{"pid": member.pid, "alive": member.is_alive} for member in self.workers],
            "cores_per_worker": self.cores,
            "memory_per_worker": self.memory,
            "registered": sum(worker["state"] == "ALIVE" for worker in status.get("workers", ())),
            "cores": status.get("cores", 0),
            "cores_used": status.get("coresused", 0),
            "applications": [application["name"] for application in status.get("activeapps", ())],
            "up_seconds": round(time.time() - self.started_at),
            "secret_file": str(secret_file()),
        }


def folder(*, make: bool = False) -> Path:
    """Return the folder with this user's cluster record."""
    own = os.environ.get(FOLDER_VARIABLE)
    path = Path(own).absolute() if own else Path.home() / ".ematix-flow" / "cluster"
    if make:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def secret_file() -> Path:
    """Return the file of the secret, readable by this user only."""
    return folder() / _SECRET


def secret_of(address: str) -> str | None:
    """Return the secret of a cluster that was started here, None for any other address."""
    if not address.startswith(f"spark://{HOST}:"):
        return None
    cluster = read_cluster()
    if cluster is None or cluster.address != address:
        return None
    try:
        secret = secret_file().read_text(encoding="utf-8").strip()
    except OSError:
        return None
    redact.remember_secret(secret)
    return secret


def read_cluster() -> LocalCluster | None:
    """Return the recorded cluster, running or not; None without a readable record."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        kept = json.loads((folder() / _FILE).read_text(encoding="utf-8"))
        workers = tuple(ClusterProcess(**member) for member in kept["workers"])
        return LocalCluster(**{**kept, "master": ClusterProcess(**kept["master"]), "workers": workers})
    return None


def write_cluster(cluster: LocalCluster) -> None:
    """Record the cluster; workers that ended are left out."""
    alive = replace(cluster, workers=cluster.living())
    write_private(folder() / _FILE, json.dumps(asdict(alive)))


def remove_cluster() -> None:
    """Remove all files of the cluster except its logs."""
    for name in (_FILE, _SECRET, "spark.conf"):
        (folder() / name).unlink(missing_ok=True)
    shutil.rmtree(folder() / "work", ignore_errors=True)


def write_private(file: Path, text: str) -> None:
    """Write a file that only this user can read, atomically."""
    part = file.with_name(f".{file.name}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        out.write(text)
    part.replace(file)


def locked() -> AbstractContextManager[None]:
    """Hold the lock that serialises starts and stops."""
    return locked_file(folder(make=True) / _LOCK)


def master_status(cluster: LocalCluster) -> dict[str, Any] | None:
    """Return the status on the master's own page, None when it does not answer."""
    import urllib.request

    try:
        with urllib.request.urlopen(f"http://{HOST}:{cluster.ui_port}/json/", timeout=5) as answer:
            status: dict[str, Any] = json.load(answer)
    except (OSError, ValueError):
        return None
    return status
