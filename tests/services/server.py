"""A server as a child process: on a free port, in a folder of its own, never outliving its parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

READY_SECONDS = 150
STOP_SECONDS = 20
_PR_SET_PDEATHSIG = 1


class ServiceMissing(Exception):
    """This machine lacks the server; the text says which command brings it."""


class ServerNotBuilt(ServiceMissing):
    """A server that takes minutes to build, which happens only when somebody asks for it: `make servers`."""


class ServiceFailed(Exception):
    """The server is installed and did not start; the text ends with its log."""


@dataclass(frozen=True)
class Server:
    """A running server: where to connect, and how to end it."""

    url: str
    stop: Callable[[], None]


@dataclass(frozen=True)
class Account:
    """The user of this machine that a server runs as; None means: as ourselves."""

    uid: int | None
    gid: int | None

    def owns(self, path: Path) -> None:
        """Hand a file or folder over."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)


def account_for(*names: str) -> Account:
    """Servers refuse to run as root: the first of these users that exists takes its place."""
    if os.geteuid() != 0:
        return Account(uid=None, gid=None)
    for name in (*names, "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(uid=entry.pw_uid, gid=entry.pw_gid)
    raise ServiceMissing(f"running as root, and none of these users exists to run a server: {', '.join(names)}")


def free_port() -> int:
    """A loopback port nobody listens on, and none of those that outgoing connections are given: a server that starts
    slowly would find it taken."""
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def run_once(command: list[str], *, account: Account, folder: Path) -> None:
    """Run a program that prepares a data folder to its end."""
    done = subprocess.run(
        command, cwd=folder, env=_environment(folder), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        errors="replace", user=account.uid, group=account.gid, extra_groups=_no_groups(account), check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise ServiceFailed(f"{command[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def launch(
    command: list[str],
    *,
    account: Account,
    folder: Path,
    death_signal: signal.Signals,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a server that receives `death_signal` when this process ends, however it ends."""
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

    def die_with_parent() -> None:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, int(death_signal))

    with (folder / "server.log").open("ab") as log:
        return subprocess.Popen(
            command, cwd=folder, env={**_environment(folder), **(environment or {})}, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log,
            user=account.uid, group=account.gid, extra_groups=_no_groups(account), start_new_session=True,
            preexec_fn=die_with_parent,
        )  # fmt: skip


def wait_until_ready(process: subprocess.Popen[bytes], *, connect: Callable[[], None], folder: Path) -> None:
    """Return when a client got in; raise with the log when the server ends or stays silent."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            connect()
            return
        except Exception as refusal:  # each driver has its own tree; all of them mean: not yet
            if process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
                continue
            end(process, by=signal.SIGKILL)
            raise ServiceFailed(f"{process.args!r}: {refusal}\n{_log_tail(folder)}") from refusal


def end(process: subprocess.Popen[bytes], *, by: signal.Signals) -> None:
    """Ask a server to end, and insist after a while."""
    if process.poll() is None:
        process.send_signal(by)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _environment(folder: Path) -> dict[str, str]:
    """Nothing of the user's own settings (PGHOST, MYSQL_…) reaches the server."""
    return {"PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin", "HOME": str(folder), "LC_ALL": "C.UTF-8"}


def _no_groups(account: Account) -> list[int] | None:
    return [] if account.uid is not None else None


def _log_tail(folder: Path) -> str:
    return (folder / "server.log").read_text(encoding="utf-8", errors="replace")[-3000:]
