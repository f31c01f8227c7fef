"""One Spark session per process, quick to start and quiet; whatever session the user has is used as it is."""

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
from ematix_flow.declare.engine import DISTRIBUTED, SAIL, EngineWish
from ematix_flow.engine import archive, cluster, executors, gateway, jars, profile, sail, shipping, submitted, warm
from ematix_flow.engine.choice import Choice, choose
from ematix_flow.engine.cluster_watch import Watch, instead_of
from ematix_flow.engine.executors import TaskNeeds, Tell
from ematix_flow.engine.launch import set_environment, without_secrets
from ematix_flow.families.lake.session import note_join_order
from ematix_flow.families.lost_engine import engine_lost
from ematix_flow.foundation.early_jvm import log_file
from ematix_flow.foundation.errors import FlowError, RunFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class _Own:
    """The session this process started."""

    session: SparkSession | None = None
    choice: Choice | None = None
    jars: set[str] = field(default_factory=set)
    seconds: float | None = None
    expected: set[str] = field(default_factory=set)
    records_classes_in: Path | None = None
    serves_one_pipeline: bool = False
    tuned: dict[str, str] = field(default_factory=dict)
    shipped: SparkSession | None = None
    """A session of the user's own that this package was sent to."""
    watch: Watch | None = None
    """Over a session on a cluster."""


_own = _Own()
_starting = threading.RLock()  # runs side by side share one session


def spark_session(
    needed: Iterable[str] = (),
    *,
    is_small: bool = False,
    engine: EngineWish | None = None,
    tasks: Callable[[], TaskNeeds] = TaskNeeds,
    tell: Tell = lambda _: None,
    is_in_use: bool = False,
) -> SparkSession:
    """The session to use: the user's own, else ours with the jars that are needed, on the engine that is asked for.

    `is_small` says that the work at hand is: a JVM that serves nothing else is then started for a short life. On a
    cluster, executors are asked for what `tasks` need; `tell` hears about the wait for them. Raises EngineLost where the
    session `is_in_use`, so that its frames could not go on in another one, and its engine has ended.
    """
    with _starting:
        session = _found_or_started(needed, is_small=is_small, engine=engine, tell=tell, is_in_use=is_in_use)
    note_join_order(session, reorders=engine_config().reorder_joins)
    if _own.watch is not None:
        _own.watch.tell = tell
    if _is_on_a_cluster(session):
        shipping.send_own_modules()
        executors.require(session, tasks())
    return session


def cluster_cores(engine: EngineWish | None = None) -> int | None:
    """Cores of the cluster, where our session is on the one that is asked for."""
    if _own.session is None or _own.choice is None or not choose(engine).same_place(_own.choice):
        return None
    return executors.cores_of(_own.session)


def reason_of(error: FlowError) -> FlowError:
    """What ended a run: an error of its own, or that its cluster left it."""
    return instead_of(error, _own.watch)


def _found_or_started(
    needed: Iterable[str], *, is_small: bool, engine: EngineWish | None, tell: Tell, is_in_use: bool
) -> SparkSession:
    from pyspark.sql import SparkSession

    wanted = set(needed)
    active = SparkSession.getActiveSession()
    if active is None and threading.current_thread() is not threading.main_thread():
        active = _own.session  # Spark knows an active session by its thread
    if active is not None and active is not _own.session:
        return _checked(active, wanted)
    if active is not None and not warm.is_usable(active):  # killed or hung
        if is_in_use:
            raise engine_lost()
        warm.leave()
        _forget()
        active = None
    choice = choose(engine) if _own.records_classes_in is None else Choice()
    stays = _own.choice is not None and choice.same_place(_own.choice)
    if stays and not choice.may_join and warm.is_joined(active):  # a stream needs a driver in this process
        stays = False
    if active is not None and stays and wanted <= _own.jars:
        return active
    if active is not None:  # ours, but started without these jars, or elsewhere
        wanted |= _own.jars if stays else set()
        _end(active)
    wanted |= _own.expected
    started = time.monotonic()
    _own.session, _own.jars = _start(wanted, choice, is_brief=is_small and _own.serves_one_pipeline, tell=tell)
    _own.choice, _own.tuned, _own.watch = choice, {}, None
    if choice.engine == DISTRIBUTED:
        _greet(_own.session, choice, tell)
    _own.seconds = time.monotonic() - started
    return _own.session


def expect(needed: Iterable[str], *, one_pipeline: bool = False) -> None:
    """Jars that pipelines of this process will want, and whether there is just one: the session starts once."""
    _own.expected |= set(needed)
    _own.serves_one_pipeline = one_pipeline


def tune(settings: Iterable[profile.Setting]) -> None:
    """Give our session the settings of a run; a session of the user's, and the user's own settings, stay as they are."""
    if _own.session is None or _own.choice is None:
        return
    for item in settings:
        if not profile.is_the_users(item.name, _own.choice.settings) and _own.tuned.get(item.name) != item.value:
            _own.session.conf.set(item.name, item.value)
            _own.tuned[item.name] = item.value


def start_seconds() -> float | None:
    """How long our session took to start, None when there is none."""
    return _own.seconds


def stop() -> None:
    """End our session, if we started one."""
    if _own.session is not None:
        warm.leave()
        _own.session.stop()
        cluster.leave(_own.session)
        _forget()


def end() -> None:
    """End our session and wait for its JVM."""
    if _own.session is not None:
        _end(_own.session)
        _forget()


def leave_lost_engine() -> bool:
    """Forget the session on a warm engine that has ended; return False where the session is not on one."""
    if not warm.is_joined(_own.session):
        return False
    warm.leave()
    _forget()
    return True


def _greet(session: SparkSession, choice: Choice, tell: Tell) -> None:
    try:
        executors.greet(session, choice, tell)
        if not choice.is_remote:
            _own.watch = Watch(session.sparkContext, choice)
    except BaseException:  # an application that nobody works for must not stay in the cluster's queue
        end()
        raise


def _is_on_a_cluster(session: SparkSession) -> bool:
    """Ours where we chose one, or the user's own session whose tasks run elsewhere."""
    if session is _own.session:
        return _own.choice is not None and _own.choice.engine == DISTRIBUTED
    if sail.recognised(session):
        return False
    if not shipping.is_connect(session) and str(session.conf.get("spark.master", "local")).startswith("local"):
        return False
    if session is not _own.shipped:
        shipping.ship(session)
        _own.shipped = session
    return True


def _forget() -> None:
    _own.session, _own.choice, _own.seconds, _own.jars, _own.watch = None, None, None, set(), None


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
    warm.leave()
    session.stop()
    cluster.leave(session)
    _end_jvm()


def _end_jvm() -> None:
    from pyspark import SparkContext

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
    native = sail.recognised(session)
    if "delta" in wanted and not native and "delta" not in str(session.conf.get("spark.sql.extensions", "")).lower():
        raise RunFailed(
            "this Spark session has no Delta Lake",
            hint="start it with ematix_flow.spark_session(), or with the delta-spark jar and its extension",
        )
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def _keep_quiet() -> None:
    """Spark prints a mistake in SQL with the stack of its JVM, before anybody can say it in a sentence."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def _start(wanted: set[str], choice: Choice, *, is_brief: bool, tell: Tell) -> tuple[SparkSession, set[str]]:
    from pyspark.sql import SparkSession

    _keep_quiet()
    if choice.submitted_with is not None:
        return submitted.open_session(wanted, choice), set(choice.submitted_with)
    if choice.engine == SAIL:
        return sail.start(choice), set(jars.read_lock())  # it needs none
    if os.environ.get("SPARK_REMOTE"):
        return SparkSession.builder.getOrCreate(), wanted
    if choice.engine == DISTRIBUTED:
        try:
            return cluster.open_session(wanted, choice, start_jvm=start_jvm, log=log_file()), wanted
        except BaseException:  # the next try starts from nothing, as this one did
            _end_jvm()
            raise
    recorded = _own.records_classes_in
    if recorded is None and choice.may_join:
        shared = warm.join(wanted, choice.settings, keep=warm.keep_warm(), tell=tell)
        if shared is not None:
            return shared
    made = profile.configuration(wanted, choice=choice, records_classes_in=recorded, is_brief=is_brief)
    session = start_jvm(made)
    if not choice.is_local:
        return session, wanted
    brought = jars.with_those_at_hand(wanted)
    if recorded is None:
        # After the work of this process, so that it does not compete with it.
        atexit.register(archive.train_in_background, brought)
    return session, wanted | (set(brought) - {"delta"})  # Delta is more than its jars: a session is started with it


def start_jvm(configuration: Mapping[str, str]) -> SparkSession:
    """A session in a JVM of this process, with its chatter in a file."""
    from pyspark.sql import SparkSession

    set_environment(configuration)
    # Spark asks for pandas before its first Arrow task; the JVM takes longer to start than pandas to be imported.
    threading.Thread(target=importlib.import_module, args=("pandas",), daemon=True).start()
    with without_secrets(configuration) as shown, _chatter_in_a_file(), gateway.started(shown):
        builder = SparkSession.builder.appName("ematix-flow")
        for key, value in shown.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()


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
