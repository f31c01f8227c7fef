"""One Spark session per process, quick to start and quiet; whatever session the user has is used as it is."""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ematix_flow.engine import archive, jars
from ematix_flow.engine.java import find_java
from ematix_flow.foundation.errors import RunFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class _Own:
    """The session this process started."""

    session: SparkSession | None = None
    jars: set[str] = field(default_factory=set)
    seconds: float | None = None
    expected: set[str] = field(default_factory=set)
    records_classes_in: Path | None = None


_own = _Own()
# ORC files keep the wall clock of the JVM that writes them.
_IN_UTC = "-Duser.timezone=UTC"
DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
# Spark's defaults are made for clusters; these suit one machine, and every value can be set otherwise by SPARK_CONF_*.
SMALL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # One process on one machine: a laptop that slept or a busy disk is not a lost executor.
    "spark.network.timeout": "86400s",
    "spark.executor.heartbeatInterval": "3600s",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.databricks.delta.stalenessLimit": "0",
}
ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.executor.extraJavaOptions": _IN_UTC,
    "spark.redaction.regex": "(?i)secret|password|token|key|dsn|url",
}


def spark_session(needed: Iterable[str] = ()) -> SparkSession:
    """The session to use: the user's own, else ours with the jars that are needed."""
    from pyspark.sql import SparkSession

    wanted = set(needed)
    active = SparkSession.getActiveSession()
    if active is not None and active is not _own.session:
        return _checked(active, wanted)
    if active is not None and wanted <= _own.jars:
        return active
    if active is not None:  # ours, but started without these jars
        wanted |= _own.jars
        _end(active)
    wanted |= _own.expected
    started = time.monotonic()
    _own.session, _own.jars = _start(wanted), wanted
    _own.seconds = time.monotonic() - started
    return _own.session


def expect(needed: Iterable[str]) -> None:
    """Jars that later pipelines of this process will want: the session starts with them, once."""
    _own.expected |= set(needed)


def start_seconds() -> float | None:
    """How long our session took to start, None when there is none."""
    return _own.seconds


def stop() -> None:
    """End our session, if we started one."""
    if _own.session is not None:
        _own.session.stop()
        _own.session, _own.seconds = None, None
        _own.jars = set()


def end() -> None:
    """End our session and wait for its JVM."""
    if _own.session is not None:
        _end(_own.session)
        _own.session, _own.seconds = None, None
        _own.jars = set()


@contextmanager
def recording_classes(file: Path) -> Iterator[None]:
    """A session started meanwhile writes the classes it loads into this archive when its JVM ends."""
    _own.records_classes_in = file
    try:
        yield
    finally:
        _own.records_classes_in = None


def _end(session: SparkSession) -> None:
    """Stop a session and its JVM: jars are read when a JVM starts, not when a session does."""
    from pyspark import SparkContext

    session.stop()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:  # it ends when its standard input does
        process.stdin.close()
        process.wait(timeout=120)
    SparkContext._gateway = SparkContext._jvm = None


def _checked(session: SparkSession, wanted: set[str]) -> SparkSession:
    if "delta" in wanted and "delta" not in str(session.conf.get("spark.sql.extensions", "")).lower():
        raise RunFailed(
            "this Spark session has no Delta Lake",
            hint="start it with ematix_flow.spark_session(), or with the delta-spark jar and its extension",
        )
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def _start(wanted: set[str]) -> SparkSession:
    from pyspark.sql import SparkSession

    if os.environ.get("SPARK_REMOTE"):
        return SparkSession.builder.getOrCreate()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    os.environ["JAVA_HOME"] = str(find_java().parent.parent)
    builder = SparkSession.builder.appName("ematix-flow")
    for key, value in configuration(wanted).items():
        builder = builder.config(key, value)
    with _chatter_in_a_file():
        session = builder.getOrCreate()
    if _own.records_classes_in is None and str(session.conf.get("spark.master")).startswith("local"):
        # After the work of this process, so that it does not compete with it.
        atexit.register(archive.train_in_background, wanted, jars.ensure(wanted) if wanted else [])
    return session


def configuration(wanted: set[str]) -> dict[str, str]:
    """Every setting of our session."""
    master = os.environ.get("EMATIX_FLOW_MASTER", "local[*]")
    conf = dict(ALWAYS) | {"spark.master": master}
    if master.startswith("local"):
        cores = str(os.cpu_count() or 2)
        conf |= SMALL | {
            "spark.sql.shuffle.partitions": cores,
            "spark.default.parallelism": cores,
            "spark.driver.memory": os.environ.get("EMATIX_FLOW_DRIVER_MEMORY", "1g"),
            "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "ematix-flow-warehouse"),
        }
    paths = jars.ensure(wanted) if wanted else []
    if paths:
        conf |= _on_the_class_path(paths, is_local=master.startswith("local"))
    if "delta" in wanted:
        conf |= DELTA_CONF
    conf["spark.driver.extraJavaOptions"] = " ".join(_java_options(paths, is_local=master.startswith("local")))
    return conf


def _on_the_class_path(paths: Sequence[Path], *, is_local: bool) -> dict[str, str]:
    """Executors of a cluster fetch jars from here; in one process the JVM's own loader can take them from its archive."""
    if is_local:
        return {"spark.driver.extraClassPath": os.pathsep.join(str(path) for path in paths)}
    return {"spark.jars": ",".join(str(path) for path in paths)}


def _java_options(paths: Sequence[Path], *, is_local: bool) -> list[str]:
    options = [_IN_UTC, f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('log4j2.properties')}"]
    if _own.records_classes_in is not None:
        return [*options, f"-XX:ArchiveClassesAtExit={_own.records_classes_in}"]
    return [*options, *archive.options(paths)] if is_local else options


def log_file() -> Path:
    """Where Spark's own chatter goes."""
    folder = Path(os.environ.get("EMATIX_FLOW_LOGS_DIR") or Path.home() / ".ematix-flow" / "logs")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.gettempdir())
    return folder / f"spark-{os.getpid()}.log"


@contextmanager
def _chatter_in_a_file() -> Iterator[None]:
    """The JVM inherits its output when it starts: from then on it writes to the log file, we keep the terminal."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(descriptor) for descriptor in (1, 2)]
    target = os.open(log_file(), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for descriptor in (1, 2):
            os.dup2(target, descriptor)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, original in zip((1, 2), kept, strict=True):
            os.dup2(original, descriptor)
            os.close(original)
        os.close(target)
