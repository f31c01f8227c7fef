"""The Spark session that lakes work in, and the settings a statement needs while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING
from weakref import WeakSet

from ematix_flow.foundation.errors import RunFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Settings belong to the session, and targets of one run may be written by several threads.
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
def starting_with(start: Callable[[], SparkSession]) -> Iterator[None]:
    """Let `active` start a session by this function where none runs: work that needs none does not wait for one."""
    before = _start.set(start)
    try:
        yield
    finally:
        _start.reset(before)


def active() -> SparkSession:
    """Return the session of this process, started if need be; raise RunFailed outside of a run without one."""
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


def note_sail(spark: SparkSession) -> None:
    """Remember that a session is on the native engine."""
    _on_sail.add(spark)


def is_sail(spark: SparkSession) -> bool:
    """Whether the session is on the native engine, which does some things in another way than Spark."""
    return spark in _on_sail


def on_sail() -> bool:
    """The same of this process's session; without one, no."""
    if not _on_sail:
        return False
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    return session is not None and session in _on_sail


def note_join_order(spark: SparkSession, *, reorders: bool) -> None:
    """Remember whether joins may be put in another order before this session sees them."""
    if reorders:
        _as_written.discard(spark)
    else:
        _as_written.add(spark)


def reorders_joins(spark: SparkSession) -> bool:
    """Whether joins may be put in another order; the native engine orders them itself."""
    return spark not in _as_written and not is_sail(spark)


def broadcast_bytes(spark: SparkSession) -> int:
    """Return up to which size Spark sends a table to every task, 0 for never."""
    text = str(spark.conf.get("spark.sql.autoBroadcastJoinThreshold", "10MB")).strip().lower()
    digits, unit = text.rstrip("bkmgt"), text.lstrip("-0123456789")[:1]
    return max(0, int(digits) * _UNITS.get(unit, 1))


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """The settings hold inside, for one thread at a time; afterwards the session is as it was."""
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
def exactly(spark: SparkSession) -> Iterator[None]:
    """Instants in UTC, bad casts are errors, and Parquet timestamps that every reader takes for what they are."""
    if all(spark.conf.get(name, None) == value for name, value in EXACT.items()):
        yield  # the engine's own sessions are like that, and need not wait for each other
        return
    with settings(spark, EXACT):
        yield


def quote(name: str) -> str:
    """An identifier of Spark SQL, quoted."""
    return "`" + name.replace("`", "``") + "`"


def text(value: str) -> str:
    """A text literal of Spark SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


@contextmanager
def interpreted(spark: SparkSession, *, rows: int) -> Iterator[None]:
    """Evaluate expressions inside without compiled code if there are few `rows`: they are through before it is compiled."""
    with settings(spark, _INTERPRETED if rows <= _FEW_ROWS else {}):
        yield
