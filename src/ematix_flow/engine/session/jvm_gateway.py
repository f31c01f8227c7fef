"""Start of the JVM of an embedded session without Spark's shell scripts.

`spark-submit` is a shell script that starts one JVM to compose the command line of another. The composed command is the
same at every start, so Spark's own launcher composes it once and it is cached beside the jars.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shlex
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ematix_flow.engine.session.jars import cache_folder
from ematix_flow.engine.session.java import find_java
from ematix_flow.foundation import early_jvm

_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_LAUNCHER = "org.apache.spark.launcher.Main"
_VECTORS = "--add-modules=jdk.incubator.vector"
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_LOOK = 0.01
# Settings that the launcher uses for the JVM's own command line; the others are passed on unchanged.
_OF_THE_JVM = (
    "spark.driver.memory", "spark.driver.extraJavaOptions", "spark.driver.extraClassPath", "spark.driver.extraLibraryPath",
    "spark.driver.defaultJavaOptions", "spark.submit.deployMode", "spark.master",
)  # fmt: skip
# With any of these variables the scripts do more than compose a command.
_OF_THE_SCRIPTS = (
    "SPARK_CONF_DIR",
    "SPARK_PREPEND_CLASSES",
    "SPARK_TESTING",
    "SPARK_SUBMIT_OPTS",
    "PYSPARK_GATEWAY_PORT",
)


@contextmanager
def started_jvm(configuration: Mapping[str, str]) -> Iterator[None]:
    """Start a JVM to which pyspark connects inside this block; where that is impossible, pyspark starts its own."""
    from pyspark import SparkContext
    from pyspark.accumulators import AccumulatorTCPServer

    command = _command(configuration) if SparkContext._gateway is None else None
    if command is None:
        yield
        return
    process, port, secret = _launch_jvm(command)
    os.environ.update({"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret})
    try:
        yield
    except BaseException:
        process.kill()
        raise
    finally:
        for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
            os.environ.pop(name, None)
    # The run itself reports a JVM that ended; these two would print tracebacks in addition.
    AccumulatorTCPServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    logging.getLogger().addFilter(_is_not_of_py4j)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    if SparkContext._gateway is not None:
        SparkContext._gateway.proc = process  # pyspark ends a JVM by closing this process's standard input


def _command(configuration: Mapping[str, str]) -> list[str] | None:
    """Return the complete command of the JVM, None where Spark's own scripts must start it."""
    if os.name != "posix" or any(os.environ.get(name) for name in _OF_THE_SCRIPTS):
        return None
    home = _spark_home()
    if (home / "conf").is_dir():  # the scripts must read spark-env.sh and spark-defaults.conf
        return None
    settings = [word for name, value in configuration.items() for word in ("--conf", f"{name}={value}")]
    tail = [*settings, *shlex.split(os.environ.get(_ARGUMENTS) or "pyspark-shell")]
    head = _cached_command(home, configuration, tail)
    return [*head, *tail] if head is not None else None


def _cached_command(home: Path, configuration: Mapping[str, str], tail: list[str]) -> list[str] | None:
    java = find_java()
    relevant = {name: configuration.get(name) for name in _OF_THE_JVM}
    stamp = (home / "jars").stat().st_mtime_ns
    key = hashlib.sha256(json.dumps([str(java), str(home), stamp, relevant], sort_keys=True).encode()).hexdigest()[:20]
    file = cache_folder().with_name("commands") / f"{key}.json"
    with contextlib.suppress(OSError, ValueError):
        kept = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(kept, list) and kept[-1] == _SUBMIT and Path(kept[0]).exists():
            return [str(word) for word in kept]
    if os.environ.get(_ARGUMENTS):
        return None  # the user's arguments, or a settings file, may change the JVM's command
    head = _compose_command(java, home, tail)
    if head is not None:
        _cache_command(file, head)
    return head


def _compose_command(java: Path, home: Path, tail: list[str]) -> list[str] | None:
    """Return the command head from Spark's launcher, as spark-submit uses it; its output ends with its arguments."""
    scala = next((file.name.split("_")[1].split("-")[0] for file in (home / "jars").glob("spark-core_*.jar")), "")
    places = {"SPARK_HOME": str(home), "JAVA_HOME": str(java.parent.parent), "SPARK_SCALA_VERSION": scala}
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m"]
    command = [str(java), *quick, "-cp", f"{home}/jars/*", _LAUNCHER, _SUBMIT, *tail]
    try:
        completed = subprocess.run(  # noqa: S603  the Java that runs Spark, no shell
            command, env={**os.environ, **places}, capture_output=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    answer = [word.decode() for word in completed.stdout.partition(b"\0\n")[2].split(b"\0") if word]
    if completed.returncode != 0 or _SUBMIT not in answer:
        return None
    head = answer[: answer.index(_SUBMIT) + 1]
    return head if _has_vectors(java) else [word for word in head if word != _VECTORS]


def _has_vectors(java: Path) -> bool:
    """Return whether a Java has the vector module; without it, Java refuses to start with the option for it.

    Spark's linear algebra is faster with it; small runtimes, such as Python packages of Java, omit it.
    """
    command = [str(java), "--list-modules"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return True
    return listed.returncode != 0 or _VECTORS.partition("=")[2] in listed.stdout


def _cache_command(file: Path, head: list[str]) -> None:
    part = file.with_suffix(f".{os.getpid()}.part")
    with contextlib.suppress(OSError):  # on failure it is composed again next time
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(head), encoding="utf-8")
        part.replace(file)


def _launch_jvm(command: list[str]) -> tuple[subprocess.Popen[bytes], int, str]:
    """Start the JVM and return it with its gateway's port and secret; raise pyspark's error if it ends."""
    environment = {
        **os.environ,
        "SPARK_HOME": str(_spark_home()),
        "PYTHONHASHSEED": "0",  # as in spark-submit: Python workers must agree on string hashes
        "SPARK_CONNECT_MODE": "0",
    }
    jvm = early_jvm.launch(command, environment)
    try:
        while jvm.process.poll() is None and not jvm.file.is_file():
            time.sleep(_LOOK)
        if not jvm.file.is_file():
            from pyspark.errors import PySparkRuntimeError

            raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
        content = jvm.file.read_bytes()
    finally:
        jvm.remove_file()
    port, length = struct.unpack("!ii", content[:8])
    return jvm.process, port, content[8 : 8 + length].decode()


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Return whether a record of the root logger does not come from py4j, which also logs there."""
    return f"{os.sep}py4j{os.sep}" not in record.pathname


def _spark_home() -> Path:
    own = os.environ.get("SPARK_HOME")
    if own:
        return Path(own)
    file = sys.modules["pyspark"].__file__
    return Path(str(file)).resolve().parent
