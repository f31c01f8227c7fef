"""The command `flow run-due`: runs what a schedule, a trigger or a retry makes due now."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.cli.flags import module_option, observing_options, run_log_options
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.loading import module as modules
from ematix_flow.cli.loading.run_log_choice import RunLogOptions
from ematix_flow.cli.render.output import Output
from ematix_flow.cli.running.observers import CommandObservers, ObserverFlags
from ematix_flow.cli.running.requested_run import execute_requested_run
from ematix_flow.declare import registry
from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.run_log.memory import InMemoryRunLog
from ematix_flow.run_log.records import in_utc

if TYPE_CHECKING:
    from ematix_flow.run_log.records import RunRecord
    from ematix_flow.scheduler.firing import RunDueResult


@click.command("run-due", cls=FlowCommand)
@click.option("--now", "moment", type=click.DateTime(["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S%z"]),
              help="the time to use as now  [default: the clock]")  # fmt: skip
@click.option("--interval", type=click.FloatRange(min=1), default=60.0, show_default=True,
              help="how many seconds ago a schedule may have fired")  # fmt: skip
@click.option("--parallel", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
              help="run up to N independent pipelines in parallel")  # fmt: skip
@module_option
@observing_options
@run_log_options
@click.pass_obj
def command(output: Output, moment: datetime | None, interval: float, parallel: int, module: str | None,
            flags: ObserverFlags, run_log_choice: RunLogOptions) -> int:  # fmt: skip
    """Run what is due: schedules that fired within the last interval, triggers, retries.

    Call it every minute from cron, a CronJob or a CI schedule. A slot is fired once, however often and on however many
    hosts it is called.
    """
    modules.load_module(module)
    from ematix_flow.engine.batch import context
    from ematix_flow.scheduler.firing import RunDueTick
    from ematix_flow.scheduler.jobs import declared_jobs

    jobs, now = declared_jobs(), in_utc(moment) if moment else clock_now()
    run_log = run_log_choice.for_writing(output) or InMemoryRunLog()
    watchers = CommandObservers(flags, output, run_log, run_log_choice.option)

    def work(record: RunRecord) -> dict[str, Any]:
        context.announce_pipelines([registry.get_pipeline(record.pipeline).spec])
        done = execute_requested_run(record, run_log, watchers, keeps_output=parallel == 1, now=now)
        return {**done.to_dict(), "_pipeline": record.pipeline}

    with closing(run_log), closing(watchers):
        tick = RunDueTick(jobs, run_log, work, now=now, interval=interval, report=output.info, parallel=parallel)
        result = tick.run()
        for event in result.skipped:
            watchers.on_scheduler_event("skipped", event.name)
    output.data(json.dumps(_tick_to_dict(result), default=str))
    return 1 if result.failed else 0


def _tick_to_dict(result: RunDueResult) -> dict[str, Any]:
    return {
        "ran": [event.result for event in result.fired],
        "failed": [
            {
                "pipeline": event.name,
                "error": event.error_message,
                "error_type": event.error_type,
                "attempt_count": event.attempt_count,
                "gave_up": event.gave_up,
            }
            for event in result.failed
        ],
        "skipped": [{"pipeline": event.name, "reason": event.reason} for event in result.skipped],
    }
