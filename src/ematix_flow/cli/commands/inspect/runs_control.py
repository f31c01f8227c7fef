"""The commands `flow runs restart`, `resume`, `cancel` and `tail`."""

from __future__ import annotations

import json
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import click

from ematix_flow.cli.flags import module_option, run_log_options
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.loading import module as modules
from ematix_flow.cli.loading.run_log_choice import RunLogOptions
from ematix_flow.cli.render.advice import short_run_id
from ematix_flow.cli.render.output import Output
from ematix_flow.cli.render.units import format_duration, format_local_time
from ematix_flow.cli.running.run_or_queue import queue_option, run_or_queue
from ematix_flow.run_log.worker import shown_status
from ematix_flow.scheduler import requests

if TYPE_CHECKING:
    from ematix_flow.run_log.records import RunRecord

_LOOK = 1.0
_RECENT = 200


@click.command("restart", cls=FlowCommand)
@click.argument("run", metavar="RUN")
@click.option("--from-step", metavar="STEP", help="the first step, such as transform[1]  [default: the failed one]")
@queue_option
@module_option
@run_log_options
@click.pass_context
def restart_command(ctx: click.Context, run: str, from_step: str | None, queue: bool, module: str | None,
                    run_log_choice: RunLogOptions) -> int:  # fmt: skip
    """Run the pipeline of an earlier run again.

    If that run failed in a transform, the new one begins with that transform, because its load is committed; any other
    begins from the start. A running scheduler executes it; without one it runs in this process.
    """
    loaded = modules.load_module(module)
    request = partial(requests.request_restart, run_id=run, from_step=from_step)
    return run_or_queue(ctx, request, loaded, run_log_choice, queue=queue)


@click.command("resume", cls=FlowCommand)
@click.argument("run", metavar="RUN")
@queue_option
@module_option
@run_log_options
@click.pass_context
def resume_command(ctx: click.Context, run: str, queue: bool, module: str | None, run_log_choice: RunLogOptions) -> int:
    """Continue a run that failed: from the last committed watermark, or with the transform that failed."""
    loaded = modules.load_module(module)
    return run_or_queue(ctx, partial(requests.request_resume, run_id=run), loaded, run_log_choice, queue=queue)


@click.command("cancel", cls=FlowCommand)
@click.argument("run", metavar="RUN")
@run_log_options
@click.pass_obj
def cancel_command(output: Output, run: str, run_log_choice: RunLogOptions) -> None:
    """Stop a run: a waiting one is removed from the queue, a running one rolls back."""
    with closing(run_log_choice.for_changing()) as run_log:
        done = requests.cancel_run(run_log, run)
    outcomes = {
        requests.NEVER_BEGUN: "had not begun, and will not",
        requests.STOPPED: "was sent SIGTERM; it rolls back",
        requests.ASKED: "works elsewhere: its scheduler is asked to stop it",
    }[done.how]
    document = {"run_id": done.record.run_id, "pipeline": done.record.pipeline, "cancelled": done.how}
    output.result(document, f"run {short_run_id(done.record.run_id)} of {done.record.pipeline} {outcomes}")


@click.command("tail", cls=FlowCommand)
@click.option("-p", "--pipeline", help="only runs of this pipeline")
@click.option(
    "-n", "--limit", type=click.IntRange(min=0), default=10, show_default=True, help="show N recent runs first"
)
@click.option(
    "--for",
    "seconds",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="stop after this time  [default: until Ctrl-C]",
)
@run_log_options
@click.pass_obj
def tail_command(output: Output, pipeline: str | None, limit: int, seconds: float | None,
                 run_log_choice: RunLogOptions) -> None:  # fmt: skip
    """Print runs as they start and end, one line each; with --json one document per line."""
    until = time.monotonic() + seconds if seconds is not None else None
    run_log = run_log_choice.for_reading()
    shown: dict[str, str] = {}
    most = limit
    while True:
        records, _ = run_log.list_runs(pipeline=pipeline, limit=max(most, 1))
        for record in reversed(records[:most]):
            status = shown_status(record)
            if shown.get(record.run_id) != status:
                shown[record.run_id] = status
                _report_change(output, record, status)
        if not shown:
            shown[""] = ""
        most = _RECENT
        if until is not None and time.monotonic() >= until:
            break
        time.sleep(_LOOK)
    run_log.close()


def _report_change(output: Output, record: RunRecord, status: str) -> None:
    if output.json:
        output.data(json.dumps({**record.to_summary_dict(), "status": status}, ensure_ascii=False))
        return
    about = record.error_summary.splitlines()[0] if record.error_summary else format_duration(record.duration_ms)
    at = record.finished_at or record.started_at
    output.data(f"{format_local_time(at)}  {short_run_id(record.run_id)}  {status:<10} {record.pipeline}  {about}")
