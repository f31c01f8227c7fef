"""Start and end of the processes of the local cluster."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ematix_flow.engine.cluster.local_cluster import (
    HOST,
    ClusterProcess,
    LocalCluster,
    folder,
    locked,
    master_status,
    read_cluster,
    remove_cluster,
    secret_file,
    write_cluster,
    write_private,
)
from ematix_flow.engine.session.java import find_java
from ematix_flow.foundation.errors import ConfigError, RunFailed, Unsupported
from ematix_flow.foundation.processes import descendants
from ematix_flow.run_log.worker import is_dead, worker_of

USUAL_PORT = 7077
_PATIENCE = 90.0
_KEPT = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")
_SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


@dataclass(frozen=True)
class ClusterOptions:
    """The options of `flow cluster start`."""

    workers: int = 2
    cores: int | None = None
    memory: str = "1g"
    port: int | None = None

    @property
    def cores_each(self) -> int:
        """Return the cores per worker: the option, else all cores of this machine divided among the workers."""
        return self.cores or max(1, (os.cpu_count() or 2) // self.workers)


def start_cluster(wanted: ClusterOptions) -> tuple[LocalCluster, bool]:
    """Return the cluster with this many workers, and whether anything was started; workers that ended are replaced."""
    if os.name != "posix":
        raise Unsupported("a cluster on this machine needs a POSIX system", hint="name a cluster elsewhere: peers=[…]")
    with locked():
        cluster = read_cluster()
        is_new = cluster is None or not cluster.is_alive
        if cluster is None or is_new:
            if cluster is not None:
                _end_processes(cluster)
            cluster = _start_master(wanted)
        missing = max(0, wanted.workers - len(cluster.living()))
        if missing:
            cluster = replace(cluster, workers=(*cluster.living(), *(_start_worker(cluster) for _ in range(missing))))
            write_cluster(cluster)
            _wait_until(lambda: _registered(cluster) >= wanted.workers, cluster.workers[-missing:], "the workers")
        return cluster, bool(is_new or missing)


def stop_cluster() -> list[int]:
    """End every process of the cluster and return the process ids."""
    with locked():
        cluster = read_cluster()
        return _end_processes(cluster) if cluster is not None else []


def _start_master(wanted: ClusterOptions) -> LocalCluster:
    port, ui_port, secret = _port(wanted.port), _free_port(), secrets.token_urlsafe(32)
    write_private(secret_file(), secret)
    write_private(folder() / "spark.conf", _configuration(secret))
    words = ["--host", HOST, "--port", str(port), "--webui-port", str(ui_port)]
    master = _launch(_MASTER, words, "master")
    cluster = LocalCluster(master, (), port, ui_port, wanted.cores_each, wanted.memory, time.time())
    write_cluster(cluster)
    _wait_until(lambda: master_status(cluster) is not None, [master], "the master")
    return cluster


def _start_worker(cluster: LocalCluster) -> ClusterProcess:
    name = f"worker-{secrets.token_hex(3)}"
    words = ["--host", HOST, "--cores", str(cluster.cores), "--memory", cluster.memory, "--webui-port", "0",
             "--work-dir", str(folder() / "work" / name)]  # fmt: skip
    return _launch(_WORKER, [*words, cluster.address], name)


def _launch(program: str, words: list[str], name: str) -> ClusterProcess:
    """Start a Spark daemon; its secret is passed in a file, because every user can read command lines."""
    import pyspark

    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    logs = folder() / "logs"
    logs.mkdir(mode=0o700, exist_ok=True)
    log = logs / f"{name}.log"
    command = ["bash", str(home / "bin" / "spark-class"), program, "--properties-file", str(folder() / "spark.conf")]
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603  Spark's own launcher, no shell
            [*command, *words],
            env=_environment(home),
            cwd=folder(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    return ClusterProcess(worker_of(process.pid), str(log))


def _environment(home: Path) -> dict[str, str]:
    """Return an environment as bare as on another machine: tasks get what they need from the session, not from here."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {
        **kept,
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(folder()),
        "JAVA_HOME": str(find_java().parent.parent),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_DAEMON_JAVA_OPTS": _SMALL_JVM,
        "SPARK_LAUNCHER_OPTS": _SMALL_JVM,
        "PYSPARK_PYTHON": sys.executable,
    }


def _configuration(secret: str) -> str:
    settings = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret,
        "spark.network.crypto.enabled": "true",
        "spark.master.rest.enabled": "false",
        "spark.ui.killEnabled": "false",
    }
    return "".join(f"{name} {value}\n" for name, value in settings.items())


def _wait_until(is_ready: Callable[[], bool], members: Iterable[ClusterProcess], description: str) -> None:
    started = list(members)
    until = time.monotonic() + _PATIENCE
    while not is_ready():
        dead = next((member for member in started if not member.is_alive), None)
        if dead is not None:
            raise RunFailed(
                f"{description} ended while starting: {_log_tail(Path(dead.log))}", hint=f"its log: {dead.log}"
            )
        if time.monotonic() > until:
            raise RunFailed(
                f"{description} did not start within {_PATIENCE:.0f} s", hint=f"the logs: {folder() / 'logs'}"
            )
        time.sleep(0.2)


def _registered(cluster: LocalCluster) -> int:
    status = master_status(cluster) or {}
    return sum(worker["state"] == "ALIVE" for worker in status.get("workers", ()))


def _end_processes(cluster: LocalCluster) -> list[int]:
    """End the workers first, so that they end their executors; kill processes still running after 15 s."""
    members = [member.worker for member in (*cluster.living(), cluster.master) if member.is_alive]
    numbers = [int(member.split(":")[1]) for member in members]
    processes = [*members, *(worker_of(pid) for pid in descendants(numbers))]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for one in processes if number == signal.SIGKILL else members:
            _signal(one, number)
        until = time.monotonic() + 15
        while time.monotonic() < until and not all(map(is_dead, processes)):
            time.sleep(0.05)
    remove_cluster()
    return numbers


def _signal(worker: str, number: int) -> None:
    if not is_dead(worker):
        try:
            os.kill(int(worker.split(":")[1]), number)
        except ProcessLookupError:
            return


def _port(wanted: int | None) -> int:
    """Return the requested port, else the default one if it is free, else any; raise if a requested one is in use."""
    if wanted == 0:
        return _free_port()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted or USUAL_PORT))
        except OSError as error:
            if wanted is not None:
                reason = (error.strerror or str(error)).lower()
                raise ConfigError(
                    f"port {wanted} cannot be used: {reason}", hint="--port 0 takes any free one"
                ) from None
            return _free_port()
    return wanted or USUAL_PORT


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _log_tail(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"
