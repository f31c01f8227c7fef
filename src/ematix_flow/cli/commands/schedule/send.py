"""The command `flow send`: sends a message that fires workflows."""

from __future__ import annotations

from contextlib import closing

import click

from ematix_flow.cli.flags import module_option, run_log_options
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.loading import module as modules
from ematix_flow.cli.loading.run_log_choice import RunLogOptions
from ematix_flow.cli.render.output import Output


@click.command("send", cls=FlowCommand)
@click.argument("message", metavar="MESSAGE")
@module_option
@run_log_options
@click.pass_obj
def command(output: Output, message: str, module: str | None, run_log_choice: RunLogOptions) -> None:
    """Send a message: the next cycle of a scheduler or run-due fires the workflows with on_message="MESSAGE"."""
    from ematix_flow.scheduler import triggers

    modules.load_module(module)
    fired = triggers.workflows_for_message(message)
    with closing(run_log_choice.for_changing()) as run_log:
        triggers.send_message(run_log, message)
    output.result({"message": message, "workflows": fired}, f"{message} is sent; it fires {', '.join(fired)}")
