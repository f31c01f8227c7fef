"""Execution of a requested run for a command: with observers, captured output, and its job settled afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from ematix_flow.cli.watchers import Watchers
from ematix_flow.declare import registry
from ematix_flow.orchestrate.worker import carry_out

if TYPE_CHECKING:
    from ematix_flow.engine.lease import Terms
    from ematix_flow.engine.result import Event, Result
    from ematix_flow.runlog.protocol import RunLog
    from ematix_flow.runlog.records import RunRecord


def carry(
    record: RunRecord,
    run_log: RunLog,
    watchers: Watchers,
    *,
    listener: Callable[[Event], None] = lambda _: None,
    keeps_output: bool = True,
    terms: Terms | None = None,
    now: datetime | None = None,
) -> Result:
    """Execute the requested run; with `keeps_output`, capture its output for `flow logs`, unless runs share it."""
    from ematix_flow.engine import batch
    from ematix_flow.observe.logs import capture_pipeline_logs

    spec = registry.get_pipeline(record.pipeline).spec
    kept = capture_pipeline_logs(record.run_id) if keeps_output else contextlib.nullcontext()

    def work() -> Result:
        return watchers.run(
            spec,
            listener,
            lambda heard, _: batch.run(spec, run_log=run_log, listener=heard, requested=record, terms=terms),
            requested=record,
        )

    with kept:
        return carry_out(record, spec, run_log, work, now=now)
