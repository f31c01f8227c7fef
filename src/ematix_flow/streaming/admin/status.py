"""The status of streams, as the run log has it, and requests to stop one."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import FlowError
from ematix_flow.foundation.redact import mask
from ematix_flow.run_log.records import RunRecord, from_text, in_utc, to_text
from ematix_flow.run_log.schedule import Action
from ematix_flow.run_log.worker import shown_status, this_worker

if TYPE_CHECKING:
    from ematix_flow.run_log.protocol import RunLog, RunLogReader

NEVER = "never"
LOOK_SECONDS = 5.0
_RECENT = 50
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamStatus:
    """The status of one stream."""

    name: str
    status: str
    """running, succeeded (it was stopped), failed, died, or never."""
    run_id: str | None = None
    since: datetime | None = None
    """When the process began to run it; a restart does not change that."""
    ended: datetime | None = None
    worker: str | None = None
    rows: int = 0
    rows_per_second: float = 0.0
    batches: int = 0
    batch_seconds: float = 0.0
    lag: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    dead_letters: int = 0
    """Messages that this run set aside."""
    dlq_depth: int | None = None
    """Dead letters in the store, from any run; None where they cannot be counted."""
    targets_behind: int = 0
    restarts: int = 0
    restart_of: str | None = None
    """The run that failed before this restart; its record has the whole error."""
    restart_after: str | None = None
    told_at: datetime | None = None
    """The time of the last figures that the stream recorded."""
    error: str | None = None
    last_replay: str | None = None
    """The last rewind, repair or replay of dead letters."""

    @property
    def is_running(self) -> bool:
        """Return whether it runs, as far as this machine can determine."""
        return self.status == "running"

    @property
    def lag_rows(self) -> int | None:
        """Return the number of messages not read yet; None where no part of the source counts them."""
        counted = [int(part["rows"]) for part in self.lag.values() if "rows" in part]
        return sum(counted) if counted else None

    @property
    def lag_seconds(self) -> float | None:
        """Return the age of the oldest message that is not read yet, in seconds."""
        return max((part["seconds"] for part in self.lag.values() if "seconds" in part), default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return the status as JSON data."""
        data = asdict(self)
        for name in ("since", "ended", "told_at"):
            data[name] = to_text(data[name]) if data[name] is not None else None
        return {**data, "running": self.is_running, "lag_rows": self.lag_rows, "lag_seconds": self.lag_seconds}


def stream_statuses(run_log: RunLogReader, names: Iterable[str] | None = None) -> list[StreamStatus]:
    """Return the status of the streams with these names, or of every stream in the run log."""
    if names is None:
        newest = run_log.latest_runs()
        names = [name for name, record in newest.items() if record.kind in ("streaming", "replay")]
    return [stream_status(run_log, name) for name in sorted(set(names))]


def stream_status(run_log: RunLogReader, name: str) -> StreamStatus:
    """Return the status of one stream."""
    records, _ = run_log.list_runs(pipeline=name, limit=_RECENT)
    streaming = [record for record in records if record.kind == "streaming" and record.status != "requested"]
    replays = [record for record in records if record.kind == "replay"]
    status = status_of_record(streaming[0]) if streaming else StreamStatus(name, NEVER)
    if not replays:
        return status
    last = replays[0]
    summary = f"{last.extras.get('action', 'replay')}, {last.status}, {to_text(last.started_at)}"
    return replace(status, last_replay=summary)


def status_of_record(record: RunRecord) -> StreamStatus:
    """Return the status from the figures of one run record."""
    extras = record.extras
    worker, depth = extras.get("worker"), extras.get("dlq_depth")
    lag = extras.get("lag")
    return StreamStatus(
        name=record.pipeline,
        status=shown_status(record),
        run_id=record.run_id,
        since=_moment(extras.get("since")) or record.started_at,
        ended=record.finished_at,
        worker=str(worker) if worker else None,
        rows=_number(extras, "rows_consumed_total"),
        rows_per_second=float(extras.get("rows_per_second") or 0.0),
        batches=_number(extras, "batches_total"),
        batch_seconds=float(extras.get("batch_duration_seconds") or 0.0),
        lag=lag if isinstance(lag, Mapping) else {},
        dead_letters=_number(extras, "dlq_writes_total"),
        dlq_depth=None if depth is None else int(depth),
        targets_behind=_number(extras, "targets_behind"),
        restarts=_number(extras, "restarts_total"),
        restart_of=extras.get("restart_of"),
        restart_after=extras.get("restart_after"),
        told_at=_moment(extras.get("snapshot_at")),
        error=record.error_summary,
    )


def running_attempt(run_log: RunLogReader, name: str) -> RunRecord | None:
    """Return the running attempt of a stream, as far as this machine can determine; None where there is none."""
    records, _ = run_log.list_runs(pipeline=name, status="running", limit=_RECENT)
    alive = [record for record in records if record.kind == "streaming" and status_of_record(record).is_running]
    return alive[0] if alive else None


def last_attempt(run_log: RunLogReader, run_id: str) -> RunRecord | None:
    """Return the record of that run, or of the last restart that followed it."""
    last = run_log.get_run(run_id)
    if last is None:
        return None
    records, _ = run_log.list_runs(pipeline=last.pipeline, limit=_RECENT)
    followed = {record.extras.get("restart_of"): record for record in records}
    while last.run_id in followed:
        last = followed[last.run_id]
    return last


@contextmanager
def recorded_action(
    run_log: RunLog | None, pipeline: str, action: str, report: Callable[[], Mapping[str, Any]]
) -> Iterator[None]:
    """Record an action of a user on a stream as a run of the kind replay, with its report."""
    began = now()
    run_id = f"{pipeline}-replay-{began:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"

    def write(status: str, error: BaseException | None = None) -> None:
        if run_log is None:
            return
        extras: dict[str, Any] = {"action": action, **report(), "worker": this_worker()}
        if isinstance(error, FlowError):
            extras["error"] = error.to_dict()
        ended = None if status == "running" else now()
        message = mask(str(getattr(error, "what", error))) if error is not None else None
        with suppress(FlowError):  # a run log that cannot be written does not stop the action
            run_log.record_run_record(
                RunRecord(run_id, pipeline, status, began, ended, error_summary=message, kind="replay", extras=extras)
            )

    write("running")
    try:
        yield
    except BaseException as exc:
        write("failed", exc)
        raise
    write("succeeded")


@contextmanager
def stop_listener(run_log: RunLog | None, is_meant: Callable[[str], bool], stop: threading.Event) -> Iterator[None]:
    """Set `stop` at a request to end a run that `is_meant` accepts: this one, or the one it is a restart of."""
    if run_log is None:
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_listen_for_stop, args=(run_log, is_meant, stop, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=5)


def _listen_for_stop(
    run_log: RunLog, is_meant: Callable[[str], bool], stop: threading.Event, ended: threading.Event
) -> None:
    while not ended.wait(LOOK_SECONDS):
        try:
            if take_stop_request(run_log, is_meant):
                stop.set()
                return
        except Exception as exc:  # a run log that is unreachable for a moment keeps the request
            _log.debug("looking for requests: %s", mask(str(exc)))


def take_stop_request(run_log: RunLog, is_meant: Callable[[str], bool]) -> bool:
    """Take a request to end such a run, so that it takes effect once; return whether there was one."""
    for record in run_log.pending_actions():
        request = Action.of(record)
        if request.kind == "cancel" and request.run_id is not None and is_meant(request.run_id):
            return run_log.take_action(record.run_id, this_worker())
    return False


def _number(extras: Mapping[str, Any], name: str) -> int:
    return int(extras.get(name) or 0)


def _moment(value: Any) -> datetime | None:
    if not isinstance(value, str):
        return None
    return from_text(value) if value.endswith("Z") else in_utc(datetime.fromisoformat(value))
