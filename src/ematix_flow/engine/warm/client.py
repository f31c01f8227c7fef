"""Functions that join, start and stop a warm engine.

An engine listens on loopback only and accepts clients that have its token, which only this user can read. Every client
holds a shared lock while its process runs; the engine ends when no client has held it for the idle time.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ematix_flow.engine.cluster.shipping import send_own_modules
from ematix_flow.engine.session import jars as jar_sets
from ematix_flow.engine.warm import records
from ematix_flow.engine.warm.policy import KeepWarm
from ematix_flow.engine.warm.records import READY_MODULE, WarmEngine, engines
from ematix_flow.foundation.errors import RunFailed
from ematix_flow.foundation.processes import descendants, is_running, is_stopped
from ematix_flow.run_log.worker import is_dead, worker_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE = 120.0
_STOP_SECONDS = 20.0
_END_SECONDS = 2.0
_LOOK = 0.03
_LOOK_CLOSELY = 0.4
_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"


@dataclass
class _ClientState:
    """The engine and session that this process has joined or started."""

    engine: WarmEngine | None = None
    session: SparkSession | None = None
    lock: IO[bytes] | None = None
    started: WarmEngine | None = None


_used = _ClientState()


def engine_started_here() -> WarmEngine | None:
    """Return the engine that this process started and that keeps running, None when there is none."""
    return _used.started


def is_usable(session: SparkSession) -> bool:
    """Return whether a session works: False if its joined engine no longer answers or has closed the session."""
    if session is not _used.session or _used.engine is None:
        return True
    try:
        return _used.engine.is_alive and bool(session.version)
    except Exception:  # Spark raises many types for a closed session
        return False


def is_joined(session: SparkSession | None) -> bool:
    """Return whether a session is on an engine that this process joined."""
    return session is not None and session is _used.session


def leave_engine() -> None:
    """Release the session on the joined engine, which would otherwise keep it until the engine ends."""
    session, engine, lock = _used.session, _used.engine, _used.lock
    _used.session = _used.engine = _used.lock = None
    if session is not None and engine is not None:
        client: Any = session
        client.release_session_on_close = engine.is_alive  # if the engine has ended, Spark would retry for seconds
        session.stop()
        os.environ.pop(_CONNECT_MODE, None)  # the next session may be one of this process
    if lock is not None:
        lock.close()


def join_engine(
    wanted: Iterable[str],
    settings: Mapping[str, str],
    *,
    keep: KeepWarm,
    report: Callable[[str], None] = lambda _: None,
) -> tuple[SparkSession, set[str]] | None:
    """Return a session on an engine with these jars and settings, and its jar sets; None when there is none.

    Where `keep` allows it, a missing engine is started. An engine that has ended, or does not answer within a second,
    is skipped and taken out of the list.
    """
    needed, identity = set(wanted), records.identity(settings)
    joined = _join_one_of(_fitting_engines(needed, identity))
    if joined is None and keep.is_kept:
        report("starting an engine that stays for the next commands")
        try:
            engine, is_new = start_engine(needed, settings, keep=keep)
        except (OSError, RunFailed) as error:  # an optimisation does not stop a run
            report(f"no engine can be kept: {error}")
            return None
        joined = _join_one_of([engine])
        _used.started = engine if is_new else None
    return joined


def start_engine(jars: Iterable[str], settings: Mapping[str, str], *, keep: KeepWarm,
          exercise: bool = False) -> tuple[WarmEngine, bool]:  # fmt: skip
    """Return an engine with these jars, and whether this call started it; raise RunFailed or OSError.

    If two processes start the same engine at once, one of them starts it and the other waits.
    """
    needed, identity = set(jars), records.identity(settings)
    folder = records.make_folder()
    with contextlib.suppress(OSError):
        records.remove_dead_engines()
    _end_retired()
    name = records.name_of(identity, jar_sets.with_cached_sets(needed))
    lock_file, until = folder / f"{name}.start", time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        for engine in _fitting_engines(needed, identity):
            if engine.is_alive:
                return engine, False
        with records.lock_for_block(lock_file) as held:
            if held is None:  # another process is starting it
                _end_stopped_start(lock_file)
                time.sleep(_LOOK)
                continue
            if not any(engine.is_alive for engine in _fitting_engines(needed, identity)):
                file = folder / f"{name}-{secrets.token_hex(3)}.json"
                started = _launch(file, identity, needed, keep=keep, exercise=exercise, held=held)
                if started is not None:
                    return started, True
    raise RunFailed(f"the engine did not start within {_PATIENCE:.0f} s", hint="flow engine stop, and try again")


def stop_engine(engine: WarmEngine) -> bool:
    """End an engine and remove its files; return False when its process had already ended."""
    alive = not is_dead(engine.worker)
    if alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(engine.pid, signal.SIGTERM)
            os.kill(engine.pid, signal.SIGCONT)  # a suspended process handles the signal only after it continues
        until = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < until and not is_dead(engine.worker):
            time.sleep(0.05)
        if not is_dead(engine.worker):
            _kill_engine(engine.pid)
    records.remove_engine(engine, keep_log=False)
    return alive


def _fitting_engines(needed: set[str], identity: str) -> list[WarmEngine]:
    return [engine for engine in engines() if engine.identity == identity and needed <= set(engine.jars)]


def _join_one_of(candidates: Iterable[WarmEngine]) -> tuple[SparkSession, set[str]] | None:
    for engine in candidates:
        lock = records.register_user(engine)
        if lock is None:
            continue
        session = _connect(engine) if engine.is_alive else None
        if session is not None:
            _used.engine, _used.session, _used.lock = engine, session, lock
            atexit.unregister(leave_engine)
            atexit.register(leave_engine)
            send_own_modules()
            return session, set(engine.jars)
        lock.close()
        if is_dead(engine.worker):
            records.remove_engine(engine)
        else:
            records.retire_engine(engine)
            _end_retired()
    return None


def _launch(
    file: Path, identity: str, jars: set[str], *, keep: KeepWarm, exercise: bool, held: IO[bytes]
) -> WarmEngine | None:
    """Start the process and wait until it answers; return None if it was suspended meanwhile and had to be killed.

    The new process also holds the start lock, in case this one is killed before the engine answers.
    """
    log = file.with_suffix(".log")
    command = [sys.executable, "-m", "ematix_flow.engine.warm.server", str(file), identity, str(keep.idle_seconds),
               keep.owner or "-", "exercise" if exercise else "-", *sorted(jars)]  # fmt: skip
    with log.open("wb") as out:
        os.chmod(log, 0o600)
        process = subprocess.Popen(  # noqa: S603  the interpreter of this process
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            pass_fds=(held.fileno(),),
            env={**os.environ, records.START_LOCK_VARIABLE: str(held.fileno())},
        )
    records.write_starting(held, worker_of(process.pid))
    until = time.monotonic() + _PATIENCE
    look_closely = time.monotonic() + _LOOK_CLOSELY
    while time.monotonic() < until:
        if file.exists():
            ready = next((engine for engine in engines() if engine.file == str(file)), None)
            if ready is not None and ready.is_alive:
                return ready
        if process.poll() is not None:
            raise RunFailed(f"the engine ended while it started: {_last_line(log)}", hint=f"its log: {log}")
        if time.monotonic() > look_closely:
            look_closely = time.monotonic() + _LOOK_CLOSELY
            if _end_if_stopped(process.pid):
                process.wait()
                return None
        time.sleep(_LOOK)
    _kill_engine(process.pid)
    raise RunFailed(f"the engine did not start within {_PATIENCE:.0f} s", hint=f"its log: {log}")


def _connect(engine: WarmEngine) -> SparkSession | None:
    try:
        from pyspark.sql import SparkSession

        # For `localhost` the client uses local credentials instead of TLS.
        url = f"sc://localhost:{engine.port}/;token={engine.token}"
        session: SparkSession = SparkSession.builder.remote(url).create()
        _limit_retries(session)
        session.version  # noqa: B018  the first call to the server, which fails if it has ended
    except Exception:  # an optimisation does not stop a run
        os.environ.pop(_CONNECT_MODE, None)
        return None
    return session


def _limit_retries(session: Any) -> None:
    """Limit Spark's retries, ten minutes by default: a local engine that does not answer for seconds has failed."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session.client.set_retry_policies([DefaultPolicy(max_retries=4, max_backoff=1000)])


def _end_retired() -> None:
    """Kill engines that were taken out of the list because they hung, still do not answer and have no clients."""
    for engine in records.retired_engines():
        with records.lock_for_block(engine.users_file) as held:
            if held is None:
                continue
            if not is_dead(engine.worker) and not engine.is_alive:
                _kill_engine(engine.pid)
                _await_end(engine)  # once killed, it cannot remove its own files
        if is_dead(engine.worker):
            records.remove_engine(engine)


def _await_end(engine: WarmEngine) -> None:
    """Wait for a killed process, which the kernel ends within milliseconds unless it waits for a disk."""
    until = time.monotonic() + _END_SECONDS
    while time.monotonic() < until and not is_dead(engine.worker):
        time.sleep(0.01)


def _end_stopped_start(lock_file: Path) -> None:
    """Kill an engine that was suspended while it started, so that another can be started."""
    worker = records.read_starting(lock_file)
    if worker is not None and not is_dead(worker):
        _end_if_stopped(int(worker.split(":")[1]))


def _end_if_stopped(pid: int) -> bool:
    if not any(map(is_stopped, (pid, *descendants([pid])))):
        return False
    _kill_engine(pid)
    return True


def _kill_engine(root: int) -> None:
    """Kill an engine, its JVM and the JVM's workers, but not the fork server's commands, of which this may be one."""
    everything = (root, *descendants([root]))
    ready = [pid for pid in everything[1:] if is_running(pid, READY_MODULE) and not is_stopped(pid)]
    spared = {*ready, *descendants(ready)}
    for pid in everything:
        if pid not in spared:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "its log is empty"
