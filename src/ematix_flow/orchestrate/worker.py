"""Carries out one requested run: takes it, runs it, remembers how the job stands after it."""

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
    """The run that was asked for; an UnknownName when there is none of this pipeline."""
    found = run_log.get_run(run_id)
    if found is None or found.pipeline != spec.name:
        raise UnknownName(f"nobody asked for a run {run_id} of {spec.name}", hint="see them: flow runs list")
    return found


def carry_out(
    record: RunRecord, spec: PipelineSpec, run_log: RunLog, work: Callable[[], _R], *, now: datetime | None = None
) -> _R:
    """Run it and settle its job; a run that somebody else has, or that was stopped, says nothing about the job."""
    try:
        done = work()
    except (LeaseHeld, LeaseLost, RunCancelled):
        raise
    except Exception as error:
        settle(run_log, spec.name, spec.retry, attempt=record.attempt, error=error, at=now or clock_now())
        raise
    settle(run_log, spec.name, spec.retry, attempt=record.attempt, error=None, at=now or clock_now())
    return done
