"""The command `flow status`: the state of each pipeline."""

from __future__ import annotations

from contextlib import closing

import click

from ematix_flow.cli.flags import module_option, run_log_options, unwatched_options
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.loading import module as modules
from ematix_flow.cli.loading.run_log_choice import RunLogOptions
from ematix_flow.cli.render.output import Output
from ematix_flow.foundation.errors import ConnectionFailed
from ematix_flow.run_log.memory import InMemoryRunLog
from ematix_flow.run_log.protocol import RunLog


@click.command("status", cls=FlowCommand)
@module_option
@unwatched_options
@run_log_options
@click.pass_obj
def command(output: Output, module: str | None, run_log_choice: RunLogOptions) -> None:
    """Show each pipeline's last run, next due time and attempts, and the age of its last success (LAG)."""
    loaded = modules.load_module(module)
    from ematix_flow.scheduler.status import HEADER, status_rows, status_snapshot

    with closing(_opened(run_log_choice, output)) as run_log:
        snapshot = status_snapshot(run_log)
    empty = f"{loaded.name} declares no pipelines; decorate a function with @ematix.pipeline(…)"
    output.listing(snapshot, status_rows(snapshot), header=HEADER, empty=empty)


def _opened(choice: RunLogOptions, output: Output) -> RunLog:
    try:
        return choice.for_reading()
    except ConnectionFailed as error:
        output.warn(f"{error.what}; continuing without history")
        return InMemoryRunLog()
