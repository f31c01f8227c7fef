"""Closes the records of runs whose worker has died."""

from __future__ import annotations

from collections.abc import Mapping

from ematix_flow.declare.retry import RetryPolicy
from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.foundation.errors import RunFailed
from ematix_flow.run_log.protocol import RunLog
from ematix_flow.run_log.records import AttemptState, RecordFate, RunRecord, closed_record
from ematix_flow.run_log.worker import has_dead_worker, this_worker
from ematix_flow.scheduler.requested_runs import record_attempt_outcome

WORKER_GONE = "its worker ended without a word"


def close_lost_runs(run_log: RunLog, policies: Mapping[str, RetryPolicy]) -> list[tuple[RunRecord, AttemptState]]:
    """Close the records of runs whose worker is gone, count them as failed attempts, and return them."""
    records = []
    for name, record in run_log.latest_runs().items():
        if record.extras.get("backfill"):  # the ledger holds its window, and another worker can claim it
            continue
        if record.status != "running" or name not in policies or not _is_worker_lost(run_log, record):
            continue
        if run_log.change_run(record.run_id, _failed):
            state = record_attempt_outcome(
                run_log,
                name,
                policies[name],
                attempt=record.attempt,
                error=RunFailed(WORKER_GONE),
                at=clock_now(),
            )
            run_log.record_run(name, clock_now(), False)
            records.append((record, state or AttemptState(record.attempt, clock_now())))
    return records


def _is_worker_lost(run_log: RunLog, record: RunRecord) -> bool:
    """Return whether the worker is gone: checked by process on this machine, by its lease on any other."""
    if has_dead_worker(record):
        return True
    worker = str(record.extras.get("worker") or "")
    if worker.partition(":")[0] == this_worker().partition(":")[0] or record.extras.get("backfill"):
        return False  # it is alive; and a past window is held in the ledger, not by a lease
    claim = run_log.claim(record.pipeline, this_worker(), 30)
    if claim.token is None:
        return False
    run_log.release(claim.token)
    return True


def _failed(record: RunRecord) -> RunRecord | RecordFate:
    if record.status != "running":
        return RecordFate.KEPT
    return closed_record(
        record, "failed", WORKER_GONE, {"error": "WorkerLost", "message": WORKER_GONE, "retryable": True}
    )
