"""The one Spark session of a process, quick to start and quiet; an existing session of the user's takes its place."""

from __future__ import annotations

import atexit
import importlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ematix_flow.config.engine import engine_config
from ematix_flow.dataplane.lost_engine import engine_lost_error
from ematix_flow.dataplane.spark_session import set_join_reordering
from ematix_flow.declare.engine import DISTRIBUTED, SAIL, EngineOptions
from ematix_flow.engine import warm
from ematix_flow.engine.cluster import cluster_session, executors, shipping
from ematix_flow.engine.cluster.executor_watch import ExecutorWatch, error_of_watch
from ematix_flow.engine.cluster.executors import TaskRequirements, Tell
from ematix_flow.engine.sail import sail_server
from ematix_flow.engine.session import class_archive, jars, jvm_gateway, spark_settings, submitted_application
from ematix_flow.engine.session.engine_choice import EngineChoice, choose_engine
from ematix_flow.engine.session.jvm_environment import set_environment, without_secrets
from ematix_flow.foundation.early_jvm import log_file
from ematix_flow.foundation.errors import FlowError, RunFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class _OwnSession:
    """The session that this process started, and its state."""

    session: SparkSession | None = None
    choice: EngineChoice | None = None
    jars: set[str] = field(default_factory=set)
    seconds: float | None = None
    expected: set[str] = field(default_factory=set)
    records_classes_in: Path | None = None
    serves_one_pipeline: bool = False
    tuned: dict[str, str] = field(default_factory=dict)
    shipped: SparkSession | None = None
    """The user's own session to which this package was sent."""
    watch: ExecutorWatch | None = None
    """The monitor of a session on a cluster."""


_own = _OwnSession()
_starting = threading.RLock()  # parallel runs share one session


def spark_session(
    needed: Iterable[str] = (),
    *,
    is_small: bool = False,
    engine: EngineOptions | None = None,
    tasks: Callable[[], TaskRequirements] = TaskRequirements,
    report: Tell = lambda _: None,
    is_in_use: bool = False,
) -> SparkSession:
    """Return the session to use: the user's own, else one of this package with these jars on the requested engine.

    `is_small` means little work: a JVM used for nothing else is then configured for a short run. On a cluster the
    executors are probed for the requirements `tasks`; `tell` is called while the run waits for them. Raise EngineLost
    if the engine has ended while the session `is_in_use`, because its dataframes cannot continue in another one.
    """
    with _starting:
        session = _find_or_start(needed, is_small=is_small, engine=engine, report=report, is_in_use=is_in_use)
    set_join_reordering(session, reorders=engine_config().reorder_joins)
    if _own.watch is not None:
        _own.watch.tell = report
    if _is_on_a_cluster(session):
        shipping.send_own_modules()
        executors.require_on_executors(session, tasks())
    return session


def cluster_cores(engine: EngineOptions | None = None) -> int | None:
    """Return the cores of the cluster if this package's session is on the requested engine, else None."""
    if _own.session is None or _own.choice is None or not choose_engine(engine).same_place(_own.choice):
        return None
    return executors.cores_of(_own.session)


def error_behind(error: FlowError) -> FlowError:
    """Return the error that ended a run: its own, or the loss of its cluster's executors."""
    return error_of_watch(error, _own.watch)


def _find_or_start(
    needed: Iterable[str], *, is_small: bool, engine: EngineOptions | None, report: Tell, is_in_use: bool
) -> SparkSession:
    from pyspark.sql import SparkSession

    wanted = set(needed)
    active = SparkSession.getActiveSession()
    if active is None and threading.current_thread() is not threading.main_thread():
        active = _own.session  # Spark's active session is per thread
    if active is not None and active is not _own.session:
        return _check_session(active, wanted)
    if active is not None and not warm.is_usable(active):  # killed or hung
        if is_in_use:
            raise engine_lost_error()
        warm.leave_engine()
        _forget_session()
        active = None
    choice = choose_engine(engine) if _own.records_classes_in is None else EngineChoice()
    stays = _own.choice is not None and choice.same_place(_own.choice)
    if stays and not choice.may_join and warm.is_joined(active):  # a stream needs its driver in this process
        stays = False
    if active is not None and stays and wanted <= _own.jars:
        return active
    if active is not None:  # this package's session, but without these jars or on another engine
        wanted |= _own.jars if stays else set()
        _end(active)
    wanted |= _own.expected
    started = time.monotonic()
    _own.session, _own.jars = _start(wanted, choice, is_brief=is_small and _own.serves_one_pipeline, report=report)
    _own.choice, _own.tuned, _own.watch = choice, {}, None
    if choice.engine == DISTRIBUTED:
        _await_executors(_own.session, choice, report)
    _own.seconds = time.monotonic() - started
    return _own.session


def announce_jars(needed: Iterable[str], *, one_pipeline: bool = False) -> None:
    """Announce jars that later pipelines need, and whether there is only one pipeline, so that one session suffices."""
    _own.expected |= set(needed)
    _own.serves_one_pipeline = one_pipeline


def apply_run_settings(settings: Iterable[spark_settings.Setting]) -> None:
    """Apply a run's settings to this package's session, except those set by the user; never to a user's session."""
    if _own.session is None or _own.choice is None:
        return
    for item in settings:
        if (
            not spark_settings.is_set_by_user(item.name, _own.choice.settings)
            and _own.tuned.get(item.name) != item.value
        ):
            _own.session.conf.set(item.name, item.value)
            _own.tuned[item.name] = item.value


def session_start_seconds() -> float | None:
    """Return the seconds that the session took to start, None when there is none."""
    return _own.seconds


def stop_session() -> None:
    """Stop the session, if this process started one."""
    if _own.session is not None:
        warm.leave_engine()
        _own.session.stop()
        cluster_session.leave_session(_own.session)
        _forget_session()


def end_session() -> None:
    """Stop the session and wait until its JVM has ended."""
    if _own.session is not None:
        _end(_own.session)
        _forget_session()


def leave_lost_session() -> bool:
    """Discard the session on a warm engine that has ended; return False where the session is not on one."""
    if not warm.is_joined(_own.session):
        return False
    warm.leave_engine()
    _forget_session()
    return True


def _await_executors(session: SparkSession, choice: EngineChoice, report: Tell) -> None:
    try:
        executors.await_executors(session, choice, report)
        if not choice.is_remote:
            _own.watch = ExecutorWatch(session.sparkContext, choice)
    except BaseException:  # an unused application must not stay in the cluster's queue
        end_session()
        raise


def _is_on_a_cluster(session: SparkSession) -> bool:
    """Return whether tasks run on a cluster, by this package's choice or in the user's session."""
    if session is _own.session:
        return _own.choice is not None and _own.choice.engine == DISTRIBUTED
    if sail_server.detect_sail_session(session):
        return False
    if not shipping.is_connect(session) and str(session.conf.get("spark.master", "local")).startswith("local"):
        return False
    if session is not _own.shipped:
        shipping.ship_package(session)
        _own.shipped = session
    return True


def _forget_session() -> None:
    _own.session, _own.choice, _own.seconds, _own.jars, _own.watch = None, None, None, set(), None


@contextmanager
def recording_classes(file: Path) -> Iterator[None]:
    """Make a session that is started inside the block write its loaded classes to this archive when its JVM ends."""
    _own.records_classes_in = file
    try:
        yield
    finally:
        _own.records_classes_in = None


def _end(session: SparkSession) -> None:
    """Stop a session and its JVM, because jars are read when a JVM starts, not when a session does."""
    warm.leave_engine()
    session.stop()
    cluster_session.leave_session(session)
    _end_jvm()


def _end_jvm() -> None:
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:  # the JVM ends when its standard input is closed
        process.stdin.close()
        process.wait(timeout=120)
    SparkContext._gateway = SparkContext._jvm = None


def _check_session(session: SparkSession, wanted: set[str]) -> SparkSession:
    native = sail_server.detect_sail_session(session)
    if "delta" in wanted and not native and "delta" not in str(session.conf.get("spark.sql.extensions", "")).lower():
        raise RunFailed(
            "this Spark session has no Delta Lake",
            hint="start it with ematix_flow.spark_session(), or with the delta-spark jar and its extension",
        )
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def _silence_spark_logger() -> None:
    """Silence loggers that print SQL errors with the JVM's stack, before this package reports them in one sentence."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def _start(wanted: set[str], choice: EngineChoice, *, is_brief: bool, report: Tell) -> tuple[SparkSession, set[str]]:
    from pyspark.sql import SparkSession

    _silence_spark_logger()
    if choice.submitted_with is not None:
        return submitted_application.application_session(wanted, choice), set(choice.submitted_with)
    if choice.engine == SAIL:
        return sail_server.start_session(choice), set(jars.read_lock())  # Sail needs no jars
    if os.environ.get("SPARK_REMOTE"):
        return SparkSession.builder.getOrCreate(), wanted
    if choice.engine == DISTRIBUTED:
        try:
            return cluster_session.open_cluster_session(wanted, choice, start_jvm=start_jvm, log=log_file()), wanted
        except BaseException:  # a retry needs a new JVM
            _end_jvm()
            raise
    recorded = _own.records_classes_in
    if recorded is None and choice.may_join:
        shared = warm.join_engine(wanted, choice.settings, keep=warm.keep_warm(), report=report)
        if shared is not None:
            return shared
    configuration = spark_settings.configuration(wanted, choice=choice, records_classes_in=recorded, is_brief=is_brief)
    session = start_jvm(configuration)
    if not choice.is_local:
        return session, wanted
    brought = jars.with_cached_sets(wanted)
    if recorded is None:
        # At exit, so that it does not compete with the work of this process.
        atexit.register(class_archive.train_archive_in_background, brought)
    return session, wanted | (set(brought) - {"delta"})  # Delta also needs settings at start


def start_jvm(configuration: Mapping[str, str]) -> SparkSession:
    """Return a session in a JVM of this process, whose output goes to a file."""
    from pyspark.sql import SparkSession

    set_environment(configuration)
    # Spark imports pandas before its first Arrow task; the JVM takes longer to start than the import.
    threading.Thread(target=importlib.import_module, args=("pandas",), daemon=True).start()
    with without_secrets(configuration) as shown, _jvm_output_to_file(), jvm_gateway.started_jvm(shown):
        builder = SparkSession.builder.appName("ematix-flow")
        for key, value in shown.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()


@contextmanager
def _jvm_output_to_file() -> Iterator[None]:
    """Redirect stdout and stderr to the log file for the block: a JVM started in it inherits them and keeps them."""
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
