"""RabbitMQ from the distribution's packages: a node of its own, with its own epmd, all of it on loopback."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.services.server import (
    STOP_SECONDS,
    Account,
    Server,
    ServiceMissing,
    account_for,
    end,
    free_port,
    launch,
    wait_until_ready,
)

USER, PASSWORD = "flow", "the-rabbit-of-the-tests"


def program() -> Path:
    """The server's own script; the one on PATH insists on root and on the machine's settings."""
    for place in (
        Path("/usr/lib/rabbitmq/bin/rabbitmq-server"),
        *Path("/usr/lib/rabbitmq").glob("lib/*/sbin/rabbitmq-server"),
    ):
        if place.exists() and _epmd() is not None:
            return place
    raise ServiceMissing("RabbitMQ is not installed; run: make services")


def _epmd() -> Path | None:
    found = shutil.which("epmd") or next((str(path) for path in Path("/usr/lib/erlang").glob("erts-*/bin/epmd")), None)
    return Path(found) if found else None


@dataclass
class Node:
    """One broker that can be stopped, killed and started again on the same port with the same data."""

    folder: Path
    port: int = field(default_factory=free_port)
    management: int | None = None
    """The port of its management API, which it has only then."""
    _dist: int = field(default_factory=free_port)
    _epmd_port: int = field(default_factory=free_port)
    _account: Account = field(default_factory=lambda: account_for("rabbitmq"))
    _process: subprocess.Popen[bytes] | None = None
    _names: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """As its user."""
        return f"amqp://{USER}:{PASSWORD}@127.0.0.1:{self.port}/%2F"

    def start(self) -> Node:
        """Until a client gets in."""
        script = program()
        self._prepare()
        environment = self._environment()
        if self._names is None:
            # Erlang starts one by itself, for all of the machine and for ever; it uses one that is there.
            self._names = launch(
                [str(_epmd()), "-port", str(self._epmd_port), "-address", "127.0.0.1"],
                account=self._account, folder=self.folder, death_signal=signal.SIGTERM, environment=environment,
            )  # fmt: skip
            _wait_for_port(self._epmd_port)
        self._process = launch(
            [str(script)], account=self._account, folder=self.folder, death_signal=signal.SIGTERM,
            environment=environment,
        )  # fmt: skip
        wait_until_ready(self._process, connect=self._connect, folder=self.folder)
        return self

    def stop(self) -> None:
        """In good order."""
        if self._process is not None:
            self._end(signal.SIGTERM)
        if self._names is not None:
            end(self._names, by=signal.SIGTERM)
            self._names = None

    def pause(self) -> None:
        """In good order, to be started again."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As a power cut would."""
        self._end(signal.SIGKILL)

    def _end(self, by: signal.Signals) -> None:
        """The script has children; all of them are one session."""
        process, self._process = self._process, None
        if process is None:
            return
        if by == signal.SIGTERM:
            process.send_signal(by)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        deadline = time.monotonic() + STOP_SECONDS
        while _listens(self.port) and time.monotonic() < deadline:
            time.sleep(0.05)

    def _prepare(self) -> None:
        settings = [
            f"listeners.tcp.default = 127.0.0.1:{self.port}",
            "distribution.listener.interface = 127.0.0.1",
            f"distribution.listener.port_range.min = {self._dist}",
            f"distribution.listener.port_range.max = {self._dist}",
            f"default_user = {USER}",
            f"default_pass = {PASSWORD}",
            "log.console = true",
            "log.file = false",
            "vm_memory_high_watermark.absolute = 512MB",
            "disk_free_limit.absolute = 50MB",
        ]
        if self.management is not None:
            settings += ["management.tcp.ip = 127.0.0.1", f"management.tcp.port = {self.management}"]
        (self.folder / "rabbitmq.conf").write_text("\n".join(settings) + "\n", encoding="utf-8")
        plugins = "rabbitmq_management" if self.management is not None else ""
        (self.folder / "enabled_plugins").write_text(f"[{plugins}].\n", encoding="utf-8")
        for name in ("mnesia", "log"):
            (self.folder / name).mkdir(exist_ok=True)
        for path in (self.folder, *self.folder.iterdir()):
            if path.name not in (".erlang.cookie", "server.log"):
                self._account.owns(path)

    def _environment(self) -> dict[str, str]:
        return {
            "RABBITMQ_NODENAME": "flow@localhost",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_DIST_PORT": str(self._dist),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "no-environment"),
            # One scheduler that sleeps when there is nothing to do: the tests share few cores.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd_port),
        }

    def _connect(self) -> None:
        import pika

        wanted = pika.URLParameters(self.url)
        wanted.socket_timeout = wanted.stack_timeout = 2.0
        wanted.connection_attempts = 1
        pika.BlockingConnection(wanted).close()


def start(folder: Path) -> Server:
    """A broker with one user who may do everything."""
    node = Node(folder).start()
    return Server(url=node.url, stop=node.stop)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _wait_for_port(port: int) -> None:
    deadline = time.monotonic() + STOP_SECONDS
    while not _listens(port) and time.monotonic() < deadline:
        time.sleep(0.02)
