"""A requested run, and the state of its job after an attempt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.retry import RetryPolicy
from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.foundation.errors import LeaseHeld, LeaseLost, RunCancelled, UnknownName
from ematix_flow.run_log.protocol import RunLog
from ematix_flow.run_log.records import AttemptState

if TYPE_CHECKING:
    from ematix_flow.run_log.records import RunRecord


def requested_run(run_log: RunLog, run_id: str, spec: PipelineSpec) -> RunRecord:
    """Return the requested run; raise an UnknownName if this pipeline has none with that id."""
    record = run_log.get_run(run_id)
    if record is None or record.pipeline != spec.name:
        raise UnknownName(f"no request for a run {run_id} of {spec.name}", hint="see them: flow runs list")
    return record


@contextmanager
def recorded_attempt(
    record: RunRecord, spec: PipelineSpec, run_log: RunLog, *, now: datetime | None = None
) -> Iterator[None]:
    """Record how the block's run ended, unless it is held elsewhere, lost its lease or was cancelled."""
    try:
        yield
    except (LeaseHeld, LeaseLost, RunCancelled):
        raise
    except Exception as error:
        record_attempt_outcome(
            run_log, spec.name, spec.retry, attempt=record.attempt, error=error, at=now or clock_now()
        )
        raise
    record_attempt_outcome(run_log, spec.name, spec.retry, attempt=record.attempt, error=None, at=now or clock_now())


def record_attempt_outcome(
    run_log: RunLog, name: str, policy: RetryPolicy, *, attempt: int, error: BaseException | None, at: datetime
) -> AttemptState | None:
    """Record the outcome of an attempt; return its state, or None after a success."""
    if error is None:
        run_log.clear_attempt_state(name)
        return None
    state = AttemptState(attempt, at, policy.gives_up(attempt, error))
    run_log.record_attempt(name, state)
    return state
