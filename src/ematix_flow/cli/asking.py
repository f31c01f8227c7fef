"""Handling of a run that a user requests: queued for a scheduler if one leads, else run in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ematix_flow.cli.history import RunLogChoice
from ematix_flow.cli.module import Loaded
from ematix_flow.cli.output import Output
from ematix_flow.orchestrate.leading import leader_of
from ematix_flow.orchestrate.wishes import Asked
from ematix_flow.runlog.protocol import RunLog

_F = TypeVar("_F", bound=Callable[..., Any])

queue_option: Callable[[_F], _F] = click.option(
    "--queue", is_flag=True, help="only queue the run: the next scheduler or `flow run-due` executes it"
)


def carried_or_queued(
    ctx: click.Context,
    run_log: RunLog,
    asked: Asked,
    loaded: Loaded,
    choice: RunLogChoice,
    *,
    queue: bool,
) -> int:
    """Leave the requested run queued if a scheduler leads or `queue` is set, else run it here; return the exit code."""
    output: Output = ctx.obj
    leader = leader_of(run_log, loaded.name)
    run_log.close()
    if not queue and leader is None:
        from ematix_flow.cli.commands import run

        given = {"run_log_url": choice.url, "run_log_path": choice.path, "no_run_log": False}
        return int(
            ctx.invoke(run.command, names=(asked.pipeline,), module=loaded.asked, run_id=asked.run_id, **given) or 0
        )
    who = f"{leader} will carry it out" if leader else "the next scheduler or `flow run-due` carries it out"
    if output.json:
        output.document({"run_id": asked.run_id, "pipeline": asked.pipeline, "status": "requested", "leader": leader})
    else:
        show = f"flow runs show {asked.run_id[:8]}{choice.option}"
        output.data(f"run {asked.run_id[:8]} of {asked.pipeline} is asked for; {who}: {show}")
    return 0
