"""The command `flow send`: sends a message that fires workflows."""

from __future__ import annotations

import click

from ematix_flow.cli import module as modules
from ematix_flow.cli.flags import module_option, run_log_options
from ematix_flow.cli.history import RunLogChoice
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.output import Output


@click.command("send", cls=FlowCommand)
@click.argument("message", metavar="MESSAGE")
@module_option
@run_log_options
@click.pass_obj
def command(output: Output, message: str, module: str | None, run_log_choice: RunLogChoice) -> None:
    """Send a message: the next cycle of a scheduler or run-due fires the workflows with on_message="MESSAGE"."""
    from ematix_flow.orchestrate import messages

    modules.load(module)
    fired = messages.listeners(message)
    run_log = run_log_choice.for_changing()
    messages.send(run_log, message)
    run_log.close()
    if output.json:
        output.document({"message": message, "workflows": fired})
    else:
        output.data(f"{message} is sent; it fires {', '.join(fired)}")
