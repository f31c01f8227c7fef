"""Execution of one requested run: look it up, run it, record the resulting state of its job."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.foundation.errors import LeaseHeld, LeaseLost, RunCancelled, UnknownName
from ematix_flow.orchestrate.settling import settle

if TYPE_CHECKING:
    from ematix_flow.runlog.protocol import RunLog
    from ematix_flow.runlog.records import RunRecord

_R = TypeVar("_R")


def requested_run(run_log: RunLog, run_id: str, spec: PipelineSpec) -> RunRecord:
    """Return the requested run; raise an UnknownName if this pipeline has none with that id."""
    found = run_log.get_run(run_id)
    if found is None or found.pipeline != spec.name:
        raise UnknownName(f"nobody asked for a run {run_id} of {spec.name}", hint="see them: flow runs list")
    return found


def carry_out(
    record: RunRecord, spec: PipelineSpec, run_log: RunLog, work: Callable[[], _R], *, now: datetime | None = None
) -> _R:
    """Call `work` and record its outcome, unless the run is held elsewhere, lost its lease or was cancelled."""
    try:
        done = work()
    except (LeaseHeld, LeaseLost, RunCancelled):
        raise
    except Exception as error:
        settle(run_log, spec.name, spec.retry, attempt=record.attempt, error=error, at=now or clock_now())
        raise
    settle(run_log, spec.name, spec.retry, attempt=record.attempt, error=None, at=now or clock_now())
    return done
