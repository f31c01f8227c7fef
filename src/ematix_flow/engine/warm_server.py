"""The process of a warm engine: a Spark session that answers clients of the same user until it is idle for long."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.engine import archive, profile, session, warm
from ematix_flow.engine.choice import Choice, choose
from ematix_flow.runlog.worker import this_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK = 1.0
_LONGEST_SOCKET = 107


def main(words: list[str]) -> int:
    """`python -m ematix_flow.engine.warm_server FILE IDLE [set …]`."""
    file, idle, jars = Path(words[0]), float(words[1]), set(words[2:])
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    port, token = _free_port(), secrets.token_urlsafe(24)
    os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = token
    chosen = choose()
    here = chosen if chosen.is_local else Choice()  # whatever the project's runs are told, an engine is of this machine
    spark = session.start_jvm({**profile.configuration(jars, choice=here), **_serving(port)})
    engine = warm.Engine(this_worker(), port, token, tuple(sorted(jars)), warm.made_for(), time.time(), idle, str(file))
    warm.write(engine)
    ready = _ready_process(file)
    try:
        archive.exercise(spark, delta="delta" in jars)  # the first run finds compiled code and running workers
        _wait(engine, spark)
    finally:
        file.unlink(missing_ok=True)
        if ready is not None:
            ready.terminate()
        spark.stop()
    return 0


def _ready_process(file: Path) -> subprocess.Popen[bytes] | None:
    """A process with everything imported, which commands are handed over to; without one they import it themselves."""
    path = str(file.with_suffix(".sock"))
    if sys.platform != "linux" or len(path.encode()) > _LONGEST_SOCKET:
        return None
    return subprocess.Popen([sys.executable, "-m", "ematix_flow.cli.ready", path], stdin=subprocess.DEVNULL)  # noqa: S603


def _serving(port: int) -> dict[str, str]:
    return {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.app.name": "ematix-flow engine",
    }


def _end(*_: object) -> None:
    """Also in the middle of its exercise."""
    raise SystemExit(0)


def _wait(engine: warm.Engine, spark: SparkSession) -> None:
    """Until its file is gone, or until nobody has needed it for long."""
    tracker: Any = spark.sparkContext.statusTracker()
    while True:
        time.sleep(_LOOK)
        if tracker.getActiveJobsIds():
            engine.touch()
        if not Path(engine.file).exists() or time.time() - engine.idle_since > engine.idle_seconds:
            return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
