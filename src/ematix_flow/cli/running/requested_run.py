"""Executes a requested run on behalf of a command: observed, with its output captured."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from ematix_flow.cli.running.observers import CommandObservers
from ematix_flow.declare import registry
from ematix_flow.scheduler.requested_runs import recorded_attempt

if TYPE_CHECKING:
    from ematix_flow.engine.batch.result import ProgressEvent, Result
    from ematix_flow.run_log.lease import LeaseTerms
    from ematix_flow.run_log.protocol import RunLog
    from ematix_flow.run_log.records import RunRecord


def execute_requested_run(
    record: RunRecord,
    run_log: RunLog,
    watchers: CommandObservers,
    *,
    listener: Callable[[ProgressEvent], None] = lambda _: None,
    keeps_output: bool = True,
    terms: LeaseTerms | None = None,
    now: datetime | None = None,
) -> Result:
    """Execute the requested run; with `keeps_output`, capture its output for `flow logs`, unless runs share it."""
    from ematix_flow.engine.batch import pipeline_run
    from ematix_flow.observe.logs import capture_pipeline_logs

    spec = registry.get_pipeline(record.pipeline).spec
    with (
        capture_pipeline_logs(record.run_id) if keeps_output else contextlib.nullcontext(),
        recorded_attempt(record, spec, run_log, now=now),
        watchers.observing(spec, listener, record) as run,
    ):
        return run.ended(pipeline_run.run(spec, run_log=run_log, listener=run.listener, requested=record, terms=terms))
