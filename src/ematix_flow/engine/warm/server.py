"""The process of a warm engine: a Spark Connect server for clients of the same user, until it has been unused for long.

It ends when no client has held the clients' lock for its idle time, when its record is removed, when its owner process
has ended, or when the installation it was started from is removed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from ematix_flow.config.engine import engine_config
from ematix_flow.engine.session import class_archive, jars, session, spark_settings
from ematix_flow.engine.session.engine_choice import EngineChoice, choose_engine
from ematix_flow.engine.warm import records
from ematix_flow.foundation.warm_engine import is_installed
from ematix_flow.run_log.worker import is_dead, this_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK = 0.5
_LONG = 20.0
_LONGEST_SOCKET = 107
_BOUNDED = {
    # Data on finished work for Spark's UI, which is switched off: thousands of runs share one process.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.connect.ui.statement.limit": "10",
    "spark.connect.ui.session.limit": "10",
    "spark.cleaner.periodicGC.interval": "5min",
    # A client releases its session. The session of a killed client is kept for this long; laptops may sleep in between.
    "spark.connect.session.manager.defaultSessionTimeout": "7d",
}
# After an OutOfMemoryError threads are missing: the engine ends, and the next command gets a new one.
_END_WHEN_FULL = "-XX:+ExitOnOutOfMemoryError"


def main(words: list[str]) -> int:
    """Run the engine: `python -m ematix_flow.engine.warm.server FILE IDENTITY IDLE OWNER EXERCISE [set …]`."""
    file, identity, idle, owner, exercise = Path(words[0]), words[1], float(words[2]), words[3].strip("-"), words[4]
    wanted = set(words[5:])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _end_server)
    token = secrets.token_urlsafe(24)
    os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = token
    chosen = choose_engine()
    here = (
        chosen if chosen.is_local else EngineChoice()
    )  # an engine runs on this machine, even if a project names a cluster
    brought = jars.with_cached_sets(wanted)
    configuration = _server_settings(spark_settings.configuration(brought, choice=here))
    exercises = engine_config().warm_up
    os.chdir(file.parent)  # the start command's folder may be removed or unmounted
    spark = session.start_jvm(configuration)
    heap = configuration["spark.driver.memory"]
    engine = records.WarmEngine(
        this_worker(), _port(spark), token, tuple(brought), identity, time.time(), idle, heap, owner, str(file)
    )
    preparation, keep_log = _Preparation(engine, spark, at_once=exercise == "exercise", exercises=exercises), False
    try:
        records.write_engine(engine)
        _release_start_lock()
        _serve_until_unused(engine, spark, preparation)
    except Py4JError as error:  # the JVM has ended, for example because its heap was full
        _write_log(f"the JVM of this engine ended: {error}")
        keep_log = True
    finally:
        file.unlink(missing_ok=True)
        preparation.end()
        with contextlib.suppress(Exception):  # a JVM that has ended cannot be stopped
            spark.stop()
        records.remove_engine(engine, keep_log=keep_log)
    return 0


def _write_log(line: str) -> None:
    with contextlib.suppress(OSError):  # a full disk
        sys.stderr.write(f"{line}\n")


def _release_start_lock() -> None:
    """Close the start lock inherited from the starting process: from now on the record represents the engine."""
    descriptor = os.environ.pop(records.START_LOCK_VARIABLE, "")
    if descriptor:
        with contextlib.suppress(OSError, ValueError):
            os.close(int(descriptor))


def _ready_process(file: Path) -> subprocess.Popen[bytes] | None:
    """Start the fork server, which runs commands; return None where it is impossible and commands import everything."""
    path = str(file.with_suffix(".sock"))
    if sys.platform != "linux" or len(path.encode()) > _LONGEST_SOCKET:
        return None
    command = [sys.executable, "-m", records.READY_MODULE, path, str(os.getpid())]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603  the interpreter of this process


def _server_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return a session's settings together with those of a server that many short commands share."""
    options = f"{settings['spark.driver.extraJavaOptions']} {_END_WHEN_FULL}"
    return {
        **settings,
        **_BOUNDED,
        "spark.driver.extraJavaOptions": options,
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",  # a port chosen in advance may be taken by then
        "spark.app.name": "ematix-flow engine",
    }


def _port(spark: SparkSession) -> int:
    """Return the port that the server listens on."""
    jvm: Any = spark.sparkContext._jvm
    service = getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
    return int(getattr(service, "MODULE$").localPort())


def _end_server(*_: object) -> None:
    """End with cleanup on a signal, also during the exercise."""
    raise SystemExit(0)


class _Preparation:
    """The preparation that speeds up later commands: the fork server, then compiled code and running workers.

    It runs at once where no command waits for the engine, otherwise when the command that started it has ended or has
    run for 20 s, so that the two do not compete.
    """

    def __init__(self, engine: records.WarmEngine, spark: SparkSession, *, at_once: bool, exercises: bool) -> None:
        self._engine = engine
        self._spark = spark
        self._due = time.monotonic() + (0 if at_once else _LONG)
        self._exercises = exercises
        self._ready: subprocess.Popen[bytes] | None = None
        self._is_done = False

    def go_on(self, *, is_used: bool) -> None:
        """Run the preparation once, when it is due."""
        if self._is_done or (is_used and time.monotonic() < self._due):
            return
        self._is_done = True
        with contextlib.suppress(Exception):  # a full disk only makes later commands slower
            self._ready = _ready_process(Path(self._engine.file))
            if self._exercises:
                class_archive.exercise_session(self._spark, delta="delta" in self._engine.jars)

    def end(self) -> None:
        """End the fork server."""
        if self._ready is not None:
            self._ready.terminate()


def _serve_until_unused(engine: records.WarmEngine, spark: SparkSession, preparation: _Preparation) -> None:
    """Wait until the engine is no longer needed."""
    last_used = time.monotonic()
    was_used = False
    while True:
        is_used = _is_used(engine, spark)
        if is_used:
            last_used, was_used = time.monotonic(), True
            with contextlib.suppress(OSError):
                os.utime(engine.users_file)
        preparation.go_on(is_used=is_used or not was_used)
        is_over = time.monotonic() - last_used > engine.idle_seconds or not _is_needed(engine)
        if is_over and _withdraw_record(engine):
            return
        time.sleep(_LOOK)


def _is_needed(engine: records.WarmEngine) -> bool:
    """Return whether record, owner and installation still exist; without one of them no new client can join."""
    return Path(engine.file).exists() and is_installed() and not (engine.owner and is_dead(engine.owner))


def _is_used(engine: records.WarmEngine, spark: SparkSession) -> bool:
    tracker: Any = spark.sparkContext.statusTracker()
    return bool(tracker.getActiveJobsIds()) or not records.is_unused(engine)


def _withdraw_record(engine: records.WarmEngine) -> bool:
    """Remove the record unless a client holds the lock; return whether it was removed. Later clients start another."""
    with records.lock_for_block(engine.users_file) as held:
        if held is None:
            return False
        Path(engine.file).unlink(missing_ok=True)
    return True


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
