"""The command `flow status`: the state of each pipeline."""

from __future__ import annotations

import click

from ematix_flow.cli import module as modules
from ematix_flow.cli.flags import module_option, run_log_options, unwatched_options
from ematix_flow.cli.history import RunLogChoice
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.output import Output
from ematix_flow.foundation.errors import ConnectionFailed
from ematix_flow.runlog.memory import InMemoryRunLog
from ematix_flow.runlog.protocol import RunLog


@click.command("status", cls=FlowCommand)
@module_option
@unwatched_options
@run_log_options
@click.pass_obj
def command(output: Output, module: str | None, run_log_choice: RunLogChoice) -> None:
    """Show each pipeline's last run, next due time and attempts, and the age of its last success (LAG)."""
    loaded = modules.load(module)
    from ematix_flow.orchestrate.status import HEADER, status_rows, status_snapshot

    run_log = _opened(run_log_choice, output)
    snapshot = status_snapshot(run_log)
    run_log.close()
    if output.json:
        output.document(snapshot)
    elif not snapshot:
        output.talk(f"{loaded.name} declares no pipelines; decorate a function with @ematix.pipeline(…)")
    else:
        output.table(status_rows(snapshot), header=HEADER)


def _opened(choice: RunLogChoice, output: Output) -> RunLog:
    try:
        return choice.for_reading()
    except ConnectionFailed as error:
        output.warn(f"{error.what}; continuing without history")
        return InMemoryRunLog()
