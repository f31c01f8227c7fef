"""The runner of a stream: one lease, and one query after the other until a stop or the end of the data."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.engine.session import spark_errors
from ematix_flow.foundation.errors import FlowError, PlanError
from ematix_flow.metrics.streaming import StreamMetrics, serve_metrics
from ematix_flow.run_log import lease
from ematix_flow.storage.lease import Lease
from ematix_flow.streaming.admin.inspection import find_damage
from ematix_flow.streaming.admin.status import stop_listener
from ematix_flow.streaming.runtime.batch_barrier import BatchBarrier
from ematix_flow.streaming.runtime.catch_up import CatchUp
from ematix_flow.streaming.runtime.checkpoint_folder import CheckpointFolder
from ematix_flow.streaming.runtime.opening import OpenStream, open_stream
from ematix_flow.streaming.runtime.progress_listener import QueryMonitor
from ematix_flow.streaming.runtime.run_history import StreamRunHistory
from ematix_flow.streaming.runtime.supervision import run_with_restarts

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from ematix_flow.run_log.protocol import RunLog

_LOOK_SECONDS = 0.2
LEASE = lease.LeaseTerms(seconds=60.0, beat=15.0)


class StreamOutcome(Mapping[str, Any]):
    """The result of a stream run; also readable as a mapping."""

    def __init__(self, total_rows: int, iterations: int, shutdown_triggered: bool, restarts: int = 0) -> None:
        self._values = {
            "total_rows": total_rows,
            "iterations": iterations,
            "shutdown_triggered": shutdown_triggered,
            "restarts": restarts,
        }

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __repr__(self) -> str:
        return f"StreamOutcome({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"


@dataclass
class _StreamRun:
    """The state that the attempts of one run share."""

    spec: StreamSpec
    once: bool
    metrics: StreamMetrics
    lease: Lease
    stop: threading.Event
    history: StreamRunHistory
    batches: int = 0

    @property
    def drains(self) -> bool:
        """Return whether the run ends when everything has been read."""
        return self.once or self.spec.trigger == "once"


def late_policy_of(spec: StreamSpec) -> str:
    """Return the declared policy for late rows."""
    part = spec.window or spec.join
    return part.late_data if part is not None else "drop"


def run_stream(
    spec: StreamSpec,
    *,
    once: bool = False,
    metrics_port: int | None = None,
    run_log: RunLog | None = None,
    listener: Callable[[Mapping[str, Any]], None] | None = None,
) -> StreamOutcome:
    """Run the stream until SIGTERM or SIGINT, or with `once` until everything that is there has been read."""
    port = metrics_port if metrics_port is not None else spec.metrics_port
    stop, metrics = threading.Event(), StreamMetrics(spec.name, late_policy_of(spec))
    with (
        _signals(stop) as caught,
        lease.hold_lease(run_log, spec.name, LEASE) as holding,
        CheckpointFolder.of(spec).exclusive(),
        serve_metrics(metrics, port),
        StreamRunHistory.recording(run_log, spec, metrics) as history,
        stop_listener(run_log, history.has, stop),
    ):
        shared = _StreamRun(spec, once, metrics, holding, stop, history)
        restarts = run_with_restarts(lambda: _run_attempt(shared, listener), spec.restarts, stop=stop, history=history)
    outcome = StreamOutcome(int(metrics.values["rows_consumed_total"]), shared.batches, stop.is_set(), restarts)
    if signal.SIGINT in caught:
        raise KeyboardInterrupt
    return outcome


def _run_attempt(run: _StreamRun, listener: Callable[[Mapping[str, Any]], None] | None) -> None:
    """Run one attempt of the query: open it, monitor it, stop it between batches."""
    barrier = BatchBarrier()
    try:
        opened = open_stream(run.spec, barrier, still_ours=run.lease.check, once=run.once)
    except FlowError as exc:
        raise exc.at(run.spec.where) from exc
    watching = QueryMonitor(opened, run.metrics, run.history, listener)
    with _translated_errors(run.spec):
        try:
            with watching.listening():
                _run_query(run, opened, watching, barrier)
        except BaseException:
            watching.on_failure()
            raise
        finally:
            run.batches += opened.work.counts.batches
            opened.close()


@contextmanager
def _translated_errors(spec: StreamSpec) -> Iterator[None]:
    """Translate errors of disks, buckets and the JVM: many are transient, and are retried."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (OSError, Py4JError, PySparkException) as exc:
        raise spark_errors.translate(exc).at(spec.where) from exc


def _run_query(run: _StreamRun, opened: OpenStream, watching: QueryMonitor, barrier: BatchBarrier) -> None:
    """Run from the first micro-batch to the last, and publish those that targets missed."""
    opened.work.backlog.adopt([target.name for target in opened.work.targets])
    catching = CatchUp(opened.work, run.metrics)
    catching.begin()
    if opened.idle_trigger is not None:
        opened.idle_trigger.begin()
    if not run.drains:
        watching.on_start()
    query = _follow_query(run, opened, watching, barrier, catching)
    watching.finish(query)
    _raise_failure(query, opened, barrier)
    try:
        if run.drains and not run.stop.is_set():
            catching.finish()
    finally:
        watching.on_end()


def _follow_query(
    run: _StreamRun, opened: OpenStream, watching: QueryMonitor, barrier: BatchBarrier, catching: CatchUp
) -> StreamingQuery:
    """Return the last query, which has ended; no query is left running, whatever is raised here."""
    # Of a source written in Python, Spark drains only the retried batch, if there is one.
    is_repeated = run.once and opened.folder.has_open_batch()

    def look() -> None:
        if run.lease.is_lost:
            run.lease.check()
        if opened.idle_trigger is not None:
            opened.idle_trigger.fire_if_due()
        catching.while_quiet()

    while True:
        query = opened.start()
        with _ended_on_error(query, barrier):
            _wait(query, run.stop, look)
            if run.stop.is_set():
                barrier.close()
                query.stop()
        has_failed = query.exception() is not None
        if not run.drains or run.stop.is_set() or has_failed or not (is_repeated or opened.has_more()):
            return query
        is_repeated = False
        watching.finish(query)


@contextmanager
def _ended_on_error(query: StreamingQuery, barrier: BatchBarrier) -> Iterator[None]:
    """End the query when the block raises: otherwise the next start would find it running, and both would write."""
    try:
        yield
    except BaseException as exc:
        barrier.closing.set()
        if isinstance(exc, Exception):  # an interrupt does not wait for the current micro-batch, which is the last one
            query.stop()
        raise


def _wait(query: StreamingQuery, stop: threading.Event, meanwhile: Callable[[], None]) -> None:
    """Wait for the end of the query or `stop`; a thread blocks in the JVM, so that a quiet stream costs nothing."""
    ended = threading.Event()

    def follow() -> None:
        with suppress(Exception):  # reported by query.exception()
            query.awaitTermination()
        ended.set()

    threading.Thread(target=follow, daemon=True).start()
    while not ended.wait(_LOOK_SECONDS) and not stop.is_set():
        meanwhile()


def _raise_failure(query: StreamingQuery, opened: OpenStream, barrier: BatchBarrier) -> None:
    failure = query.exception()
    if failure is None:
        return
    own = opened.work.failure
    if own is not None:  # a batch is read while it is written
        raise opened.loss_in(failure) or own
    if barrier.has_refused:
        return
    raise opened.translated(failure) or _raise_if_damaged(opened) or spark_errors.translate(failure)


def _raise_if_damaged(opened: OpenStream) -> FlowError | None:
    """Return an error where Spark cannot read its checkpoint, which a retry does not cure; None otherwise."""
    damage_found, name = find_damage(opened.folder), opened.spec.name
    if damage_found is None:
        return None
    hint = f"flow doctor checkpoint {name} says what is wrong with it, and what to do"
    return PlanError(f"the checkpoint of {name} is damaged: {damage_found}", hint=hint, where=opened.spec.where)


@contextmanager
def _signals(stop: threading.Event) -> Iterator[list[int]]:
    """Stop between batches at SIGTERM or SIGINT, and at once at a second one; signals reach only the main thread."""
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def ask(number: int, _: Any) -> None:
        caught.append(number)
        if stop.is_set():  # the second signal: the current batch is left as after a crash, which harms nothing
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
