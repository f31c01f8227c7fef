"""Queues a requested run where a scheduler leads, else executes it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar

import click

from ematix_flow.cli.loading.module import LoadedModule
from ematix_flow.cli.loading.run_log_choice import RunLogOptions
from ematix_flow.cli.render.output import Output
from ematix_flow.run_log.protocol import RunLog
from ematix_flow.scheduler.queueing import leader_of
from ematix_flow.scheduler.requests import RequestedRun

_F = TypeVar("_F", bound=Callable[..., Any])

queue_option: Callable[[_F], _F] = click.option(
    "--queue", is_flag=True, help="only queue the run: the next scheduler or `flow run-due` executes it"
)


def run_or_queue(
    ctx: click.Context,
    request: Callable[[RunLog], RequestedRun],
    loaded: LoadedModule,
    choice: RunLogOptions,
    *,
    queue: bool,
) -> int:
    """Request a run; leave it queued if a scheduler leads or `queue` is set, else run it here; return the exit code."""
    output: Output = ctx.obj
    with closing(choice.for_changing()) as run_log:
        requested, leader = request(run_log), leader_of(run_log, loaded.name)
    if not queue and leader is None:
        from ematix_flow.cli.commands.run import run

        parameters = {"run_log_url": choice.url, "run_log_path": choice.path, "no_run_log": False}
        return int(
            ctx.invoke(
                run.command, names=(requested.pipeline,), module=loaded.asked, run_id=requested.run_id, **parameters
            )
            or 0
        )
    executor = f"{leader} will carry it out" if leader else "the next scheduler or `flow run-due` carries it out"
    document = {"run_id": requested.run_id, "pipeline": requested.pipeline, "status": "requested", "leader": leader}
    show = f"flow runs show {requested.run_id[:8]}{choice.option}"
    output.result(document, f"run {requested.run_id[:8]} of {requested.pipeline} is asked for; {executor}: {show}")
    return 0
