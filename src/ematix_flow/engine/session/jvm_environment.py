"""The environment of a JVM that this package starts, and its secret settings, kept off the command line."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ematix_flow.config.spark import is_secret_setting
from ematix_flow.engine.session.java import find_java

PYTHON_SETTING = "spark.pyspark.python"
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_LOOPBACK = "127.0.0.1"


class _OwnVariables:
    """The environment variables that this package set and may remove again; those set by the user stay."""

    names: frozenset[str] = frozenset()


def set_environment(configuration: Mapping[str, str]) -> None:
    """Set the environment variables that Spark's launcher and Python workers read."""
    for name in _OwnVariables.names:
        os.environ.pop(name, None)
    ours = environment_variables(configuration)
    os.environ.update(ours)
    _OwnVariables.names = frozenset(ours)
    os.environ["JAVA_HOME"] = str(find_java().parent.parent)


def environment_variables(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return these variables for a process still to be started, without those that the user set."""
    wanted = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    if configuration.get("spark.master", "local").startswith("local"):
        wanted["SPARK_LOCAL_IP"] = _LOOPBACK
    ours = {name: value for name, value in wanted.items() if name not in os.environ}
    if PYTHON_SETTING in configuration:  # Spark itself reads this setting only when it starts the program
        ours["PYSPARK_PYTHON"] = configuration[PYTHON_SETTING]
    return ours


@contextmanager
def without_secrets(configuration: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield the settings allowed on a command line; the JVM reads the others from a file that is deleted afterwards."""
    from pyspark import SparkContext

    hidden = {name: value for name, value in configuration.items() if is_secret_setting(name)}
    if not hidden or SparkContext._gateway is not None:  # a running JVM gets settings over a socket
        yield dict(configuration)
        return
    before = os.environ.get(_ARGUMENTS)
    handle, file = tempfile.mkstemp(prefix="ematix-flow-", suffix=".conf")  # readable by this user only
    try:
        with os.fdopen(handle, "w", encoding="ascii") as out:
            out.write(properties_file(hidden))
        ours = f"--properties-file {shlex.quote(file)} --load-spark-defaults"
        os.environ[_ARGUMENTS] = f"{ours} {before or 'pyspark-shell'}"
        yield {name: value for name, value in configuration.items() if name not in hidden}
    finally:
        os.unlink(file)
        if before is None:
            os.environ.pop(_ARGUMENTS, None)
        else:
            os.environ[_ARGUMENTS] = before


def properties_file(settings: Mapping[str, str]) -> str:
    """Return the settings as the text of a properties file."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())


def _escaped(value: str) -> str:
    r"""Return a value escaped for Java properties files.

    >>> print(_escaped("a\\b é"))
    a\\b\u0020\u00e9
    """
    return "".join(
        char if char.isascii() and char.isprintable() and char not in " \\" else _code(char) for char in value
    )


def _code(char: str) -> str:
    if char == "\\":
        return "\\\\"
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
