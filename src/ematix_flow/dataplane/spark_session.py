"""The Spark session of this process, settings for single statements, and observed counts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ematix_flow.foundation.errors import RunFailed

if TYPE_CHECKING:
    from pyspark.sql import Observation, SparkSession

# Settings belong to the session, and several threads may write the targets of one run.
_settings = threading.RLock()
_on_sail: WeakSet[SparkSession] = WeakSet()
_as_written: WeakSet[SparkSession] = WeakSet()
_start: ContextVar[Callable[[], SparkSession] | None] = ContextVar("start", default=None)

EXACT = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
}

_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_FEW_ROWS = 20_000
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@contextmanager
def start_session_with(start: Callable[[], SparkSession]) -> Iterator[None]:
    """Make `active` start a session with this function if none runs; work without Spark then starts none."""
    before = _start.set(start)
    try:
        yield
    finally:
        _start.reset(before)


def active_session() -> SparkSession:
    """Return the session of this process, started if necessary; raise RunFailed if none can be started."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkException as exc:
        start = _start.get()
        if start is not None:
            return start()
        raise RunFailed(
            "no Spark session is running", hint="start one first: SparkSession.builder.getOrCreate()"
        ) from exc


def mark_sail_session(spark: SparkSession) -> None:
    """Record that a session uses the Sail engine."""
    _on_sail.add(spark)


def is_sail_session(spark: SparkSession) -> bool:
    """Return whether the session uses the Sail engine, which behaves differently from Spark in some cases."""
    return spark in _on_sail


def is_active_session_sail() -> bool:
    """Return whether the session of this process uses the Sail engine; False without a session."""
    if not _on_sail:
        return False
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    return session is not None and session in _on_sail


def set_join_reordering(spark: SparkSession, *, reorders: bool) -> None:
    """Record whether joins may be reordered before this session receives them."""
    if reorders:
        _as_written.discard(spark)
    else:
        _as_written.add(spark)


def reorders_joins(spark: SparkSession) -> bool:
    """Return whether joins may be reordered; the Sail engine orders them itself."""
    return spark not in _as_written and not is_sail_session(spark)


def broadcast_bytes(spark: SparkSession) -> int:
    """Return the size in bytes up to which Spark broadcasts a table, 0 for never."""
    text = str(spark.conf.get("spark.sql.autoBroadcastJoinThreshold", "10MB")).strip().lower()
    digits, unit = text.rstrip("bkmgt"), text.lstrip("-0123456789")[:1]
    return max(0, int(digits) * _UNITS.get(unit, 1))


@contextmanager
def session_settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Apply settings inside, for one thread at a time, and restore the previous ones afterwards."""
    with _settings:
        before = {name: spark.conf.get(name, None) for name in wanted}
        changed = {name: value for name, value in wanted.items() if before[name] != value}
        try:
            for name, value in changed.items():
                spark.conf.set(name, value)
            yield
        finally:
            for name in changed:
                old = before[name]
                if old is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, old)


@contextmanager
def exact_settings(spark: SparkSession) -> Iterator[None]:
    """Apply the settings of `EXACT` inside: UTC, errors on bad casts, unambiguous Parquet timestamps."""
    if all(spark.conf.get(name, None) == value for name, value in EXACT.items()):
        yield  # the engine's own sessions already have these settings and need no lock
        return
    with session_settings(spark, EXACT):
        yield


@contextmanager
def interpreted_settings(spark: SparkSession, *, rows: int) -> Iterator[None]:
    """Disable code generation inside for few `rows`, which take less time than the compilation."""
    with session_settings(spark, _INTERPRETED if rows <= _FEW_ROWS else {}):
        yield


def observed_counts(watch: Observation) -> Mapping[str, Any]:
    """Return the metrics after the action; none where Spark removed the observed step because it returns no rows."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    try:
        return watch.get
    except Py4JJavaError:
        return {}
