"""A class archive (AppCDS) for Spark's JVM: created once per Java and jar set, and used by every later start.

Half of a session's start is the JVM reading and verifying some fifteen thousand classes. An archive stores them in a
form that can be memory-mapped. It is only an optimisation: if it is missing, foreign or broken, the JVM reads its jars.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ematix_flow.engine.session import jars
from ematix_flow.engine.session.java import find_java
from ematix_flow.storage.file_locks import try_lock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SWITCH = "EMATIX_FLOW_CLASS_ARCHIVE"  # "off": neither used nor made


def options(extra: Sequence[Path]) -> list[str]:
    """Return the options of a JVM whose class path ends with these jars; empty while there is no archive."""
    file = archive_file(extra)
    if file is None or not file.exists():
        return []
    # Without the two -Xlog options a JVM that rejects the archive prints so on the terminal.
    return [f"-XX:SharedArchiveFile={file}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def archive_file(extra: Sequence[Path]) -> Path | None:
    """Return the archive file for this Java, this Spark and these jars; None where archives are switched off."""
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "false"):
        return None
    digest = hashlib.sha256()
    for file in _archive_inputs(extra):
        with contextlib.suppress(OSError):
            known = file.stat()
            digest.update(f"{file}|{known.st_size}|{known.st_mtime_ns}\n".encode())
    return jars.cache_folder().with_name("classes") / f"{digest.hexdigest()[:20]}.jsa"


def train_archive_in_background(sets: Iterable[str]) -> None:
    """Create the archive in a separate process at low priority, unless another process is creating it."""
    file = archive_file(jars.ensure_jars(sets))
    reserved = _reserve(file) if file is not None and not file.exists() else None
    if reserved is None:
        return
    with reserved, contextlib.suppress(OSError):  # an optimisation does not stop a run
        # The new process inherits the lock, and holds it until it ends.
        subprocess.Popen(  # noqa: S603  the interpreter of this process
            [sys.executable, "-m", "ematix_flow.engine.session.class_archive", *sorted(sets)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(reserved.fileno(),),
            env={**os.environ, "EMATIX_FLOW_NICE": "10"},
        )


def train_archive(sets: Iterable[str]) -> Path | None:
    """Run a typical workload in a new session whose JVM records its classes, and return the archive file, if any."""
    from ematix_flow.engine.session import session

    wanted = jars.with_cached_sets(sets)
    file = archive_file(jars.ensure_jars(wanted))
    if file is None or file.exists():
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    _make_base_archive(find_java())
    part = file.with_suffix(f".{os.getpid()}.part")
    try:
        with session.recording_classes(part):
            exercise_session(session.spark_session(wanted), delta="delta" in wanted, streams=True)
            session.end_session()
        if part.exists():
            part.replace(file)
            _remove_older_archives(file)
    finally:
        part.unlink(missing_ok=True)
    return file if file.exists() else None


def _make_base_archive(java: Path) -> None:
    """Create the base archive of a Java that was installed without one; every other archive builds on it.

    Distributions ship it; a runtime of the extra `java` does not. Where its folder is not writable, nothing is created.
    """
    servers = java.parent.parent / "lib" / "server"
    if (servers / "classes.jsa").exists() or not os.access(servers, os.W_OK):
        return
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run([str(java), "-Xshare:dump"], capture_output=True, timeout=120, check=False)  # noqa: S603


def train_archive_of_cached_jars() -> None:
    """Create the archive for the jars in the cache, unless another process is creating it."""
    file = archive_file(jars.ensure_jars(jars.with_cached_sets(())))
    reserved = _reserve(file) if file is not None and not file.exists() else None
    if reserved is not None:
        with reserved:
            train_archive(())


def exercise_session(spark: SparkSession, *, delta: bool, streams: bool = False) -> None:
    """Run the operations that pipelines typically use, on 20 rows."""
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="ematix-flow-classes-"))
    try:
        rows = spark.range(0, 20, 1, 2).mapInArrow(lambda batches: batches, "id LONG")
        shaped = rows.selectExpr(
            "id", "CAST(id AS STRING) AS text", "CAST(id AS DECIMAL(12,2)) AS amount", "current_timestamp() AS at"
        )
        shaped.write.parquet(f"{folder}/parquet")
        stored = spark.read.parquet(f"{folder}/parquet")
        stored.createOrReplaceTempView("flow_classes")
        spark.sql("SELECT text, count(*), max(at) FROM flow_classes GROUP BY text HAVING count(*) > 0").collect()
        stored.write.csv(f"{folder}/csv", header=True)
        spark.read.csv(f"{folder}/csv", header=True, inferSchema=True).count()
        if streams:
            _exercise_stream(spark, folder)
        if delta:
            _exercise_delta(spark, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _exercise_stream(spark: SparkSession, folder: Path) -> None:
    def read(batch: DataFrame, number: int) -> None:
        batch.selectExpr("to_json(struct(*)) AS row").collect()

    stored = spark.readStream.schema("id LONG, text STRING, at TIMESTAMP").parquet(f"{folder}/parquet")
    writer = stored.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    writer.foreachBatch(read).start().awaitTermination()


def _exercise_delta(spark: SparkSession, folder: Path) -> None:
    table = f"delta.`{folder}/delta`"
    spark.sql(f"CREATE TABLE {table} (id BIGINT, text STRING, amount DECIMAL(12,2), at TIMESTAMP) USING delta")
    spark.table("flow_classes").write.format("delta").mode("append").save(f"{folder}/delta")
    spark.sql(
        f"MERGE INTO {table} AS t USING (SELECT * FROM flow_classes WHERE id > 5) AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET t.text = 'x' WHEN NOT MATCHED THEN INSERT *"
    ).collect()
    spark.read.format("delta").load(f"{folder}/delta").count()


def _archive_inputs(extra: Sequence[Path]) -> list[Path]:
    """Return the files whose change invalidates an archive: the JVM itself compares names, sizes and times."""
    import importlib.util

    java = find_java()
    module_spec = importlib.util.find_spec("pyspark")
    home = Path(module_spec.origin).parent if module_spec and module_spec.origin else Path()
    own = Path(os.environ.get("SPARK_HOME") or home)
    return [java, java.parent.parent / "lib" / "modules", own / "jars", *extra]


def _reserve(file: Path) -> IO[bytes] | None:
    """Return a lock for the process that creates the archive; None while another one has it, or on a read-only disk."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return try_lock(file.with_suffix(".lock"))
    except OSError:
        return None


def _remove_older_archives(kept: Path) -> None:
    """Delete archives unused for 30 days: they are large, and an updated Java or Spark leaves its old one behind."""
    month = 30 * 86400
    for file in kept.parent.glob("*.jsa"):
        with contextlib.suppress(OSError):
            if file != kept and time.time() - max(file.stat().st_atime, file.stat().st_mtime) > month:
                file.unlink()


def _lower_priority(nice: int) -> None:
    """Raise the nice value of this process and of its session.

    Linux shares the processor between sessions first (autogroups), where the nice value of a process does not count: without
    the second step a process in a session of its own takes as much as everything in the user's terminal.
    """
    os.nice(nice)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(nice), encoding="ascii")


def main(sets: list[str]) -> int:
    """Run `python -m ematix_flow.engine.session.class_archive [set …]`: archive these sets, or with `--at-hand` the cached ones."""
    from ematix_flow.foundation.errors import FlowError

    if os.environ.get("EMATIX_FLOW_NICE"):
        _lower_priority(int(os.environ["EMATIX_FLOW_NICE"]))
    if sets == ["--at-hand"]:
        train_archive_of_cached_jars()
        return 0
    try:
        archive = train_archive(sets)
    except FlowError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(f"{archive}\n" if archive else "")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
