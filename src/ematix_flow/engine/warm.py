"""A warm engine: one Spark process of this user, kept ready, that many short runs share.

`flow engine start` starts it, every run of the same user joins it while it is there, and it ends by itself when nobody
has needed it for a while. It listens on loopback only and asks every client for a token that only this user can read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.engine.shipping import send_own_modules
from ematix_flow.foundation.engine_folder import engine_folder
from ematix_flow.foundation.errors import RunFailed
from ematix_flow.runlog.worker import is_dead

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IDLE_SECONDS = 30 * 60
_HEARTBEAT = 30.0
_PATIENCE = 120.0
_SETTINGS = b"\x04"  # the kind of the first frame that either side of HTTP/2 sends
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00" + _SETTINGS + b"\x00\x00\x00\x00\x00"


@dataclass(frozen=True)
class Engine:
    """One engine: who it is, where it listens, what it has on its class path."""

    worker: str
    port: int
    token: str
    jars: tuple[str, ...]
    made_for: str
    started_at: float
    idle_seconds: float
    file: str

    @property
    def pid(self) -> int:
        """Its process."""
        return int(self.worker.split(":")[1])

    @property
    def is_alive(self) -> bool:
        """Whether the process is there, and what listens on its port speaks HTTP/2, as Spark Connect does."""
        return not is_dead(self.worker) and _answers(self.port)

    @property
    def idle_since(self) -> float:
        """When somebody last used it."""
        with contextlib.suppress(OSError):
            return max(self.started_at, Path(self.file).stat().st_mtime)
        return self.started_at

    def touch(self) -> None:
        """Somebody uses it."""
        with contextlib.suppress(OSError):
            os.utime(self.file)

    def to_dict(self) -> dict[str, object]:
        """What may be shown."""
        return {
            "pid": self.pid,
            "port": self.port,
            "jars": list(self.jars),
            "alive": self.is_alive,
            "up_seconds": round(time.time() - self.started_at),
            "idle_seconds": round(time.time() - self.idle_since),
            "ends_after_idle_seconds": self.idle_seconds,
        }


def join(wanted: set[str]) -> tuple[SparkSession, set[str]] | None:
    """A session on a warm engine that has these jars; None when there is none, or when it does not answer."""
    for engine in engines():
        if engine.made_for == made_for() and wanted <= set(engine.jars) and engine.is_alive:
            session = _connect(engine)
            if session is not None:
                _keep_awake(engine)
                send_own_modules()
                return session, set(engine.jars)
    return None


def engines() -> list[Engine]:
    """Every engine of this user that is written down, dead or alive."""
    found = []
    for file in sorted(folder().glob("*.json")):
        with contextlib.suppress(OSError, ValueError, TypeError):
            if hasattr(os, "getuid") and file.stat().st_uid != os.getuid():
                continue  # another user's: neither its token nor its process is ours to use
            kept = json.loads(file.read_text(encoding="utf-8"))
            found.append(Engine(**{**kept, "jars": tuple(kept["jars"]), "file": str(file)}))
    return found


def start(jars: Iterable[str], *, idle_seconds: float = IDLE_SECONDS) -> tuple[Engine, bool]:
    """The engine with these jars, and whether it was started just now."""
    wanted = set(jars)
    for engine in engines():
        if engine.made_for == made_for() and wanted <= set(engine.jars) and engine.is_alive:
            return engine, False
    forget_dead()
    file = folder(make=True) / f"{key(wanted)}.json"
    log = file.with_suffix(".log")
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603  this very interpreter
            [sys.executable, "-m", "ematix_flow.engine.warm_server", str(file), str(idle_seconds), *sorted(wanted)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        ready = next((engine for engine in engines() if engine.file == str(file) and engine.is_alive), None)
        if ready is not None:
            return ready, True
        if process.poll() is not None:
            raise RunFailed(f"the engine ended while it started: {_last_line(log)}", hint=f"its log: {log}")
        time.sleep(0.1)
    process.terminate()
    raise RunFailed(f"the engine did not start within {_PATIENCE:.0f} s", hint=f"its log: {log}")


def stop(engine: Engine) -> bool:
    """End an engine; False when it was dead already."""
    alive = not is_dead(engine.worker)
    if alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(engine.pid, signal.SIGTERM)
        until = time.monotonic() + 20
        while time.monotonic() < until and not is_dead(engine.worker):
            time.sleep(0.05)
        if not is_dead(engine.worker):
            with contextlib.suppress(ProcessLookupError):
                os.kill(engine.pid, signal.SIGKILL)
    Path(engine.file).unlink(missing_ok=True)
    return alive


def forget_dead() -> None:
    """Remove what engines that died left behind."""
    for engine in engines():
        if is_dead(engine.worker):
            Path(engine.file).unlink(missing_ok=True)


def write(engine: Engine) -> None:
    """Write an engine down, for this user's eyes only."""
    file = Path(engine.file)
    part = file.with_suffix(".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        json.dump({name: value for name, value in asdict(engine).items() if name != "file"}, out)
    part.replace(file)


def folder(*, make: bool = False) -> Path:
    """Where engines are written down."""
    found = engine_folder()
    if make:
        found.mkdir(mode=0o700, parents=True, exist_ok=True)
    return found


def key(jars: Iterable[str]) -> str:
    """One engine per interpreter, Spark and jar set."""
    return hashlib.sha256(f"{made_for()}|{','.join(sorted(jars))}".encode()).hexdigest()[:12]


def made_for() -> str:
    """Client and engine must be of one build: they exchange pickled functions."""
    from importlib.metadata import version

    here = Path(__file__).resolve().parent
    return f"{sys.executable}|{sys.version_info[:3]}|{version('pyspark')}|{here}"


def _connect(engine: Engine) -> SparkSession | None:
    try:
        from pyspark.sql import SparkSession

        # By this name the client takes credentials for local connections instead of TLS.
        url = f"sc://localhost:{engine.port}/;token={engine.token}"
        session: SparkSession = SparkSession.builder.remote(url).create()
        _be_impatient(session)
        session.version  # noqa: B018  the first word to the server: a stale one does not answer
    except Exception:  # an optimisation does not stop a run
        os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
        return None
    return session


def _be_impatient(session: Any) -> None:
    """An engine on this machine that does not answer for seconds is dead; by default Spark asks it for ten minutes."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session.client.set_retry_policies([DefaultPolicy(max_retries=4, max_backoff=1000)])


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as asked:
            asked.settimeout(2)
            asked.sendall(_GREETING)
            return asked.recv(9)[3:4] == _SETTINGS
    except OSError:
        return False


def _keep_awake(engine: Engine) -> None:
    """The engine counts as used while this process lives."""

    def beat() -> None:
        while True:
            engine.touch()
            time.sleep(_HEARTBEAT)

    threading.Thread(target=beat, daemon=True, name="flow-engine-heartbeat").start()


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"
