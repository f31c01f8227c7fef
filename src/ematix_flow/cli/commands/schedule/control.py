"""The commands `flow retry`, `flow pause`, `flow unpause` and `flow send`."""

from __future__ import annotations

from contextlib import closing
from functools import partial

import click

from ematix_flow.cli.flags import module_option, run_log_options
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.loading import module as modules
from ematix_flow.cli.loading.run_log_choice import RunLogOptions
from ematix_flow.cli.render.output import Output
from ematix_flow.cli.running.run_or_queue import queue_option, run_or_queue
from ematix_flow.declare import registry, workflow
from ematix_flow.scheduler import requests, triggers


@click.command("retry", cls=FlowCommand)
@click.argument("name", metavar="NAME")
@queue_option
@module_option
@run_log_options
@click.pass_context
def retry_command(ctx: click.Context, name: str, queue: bool, module: str | None, run_log_choice: RunLogOptions) -> int:
    """Retry a pipeline whatever failed before, also one whose attempts are used up.

    A running scheduler executes it; without one it runs in this process.
    """
    loaded = modules.load_module(module)
    registry.get_pipeline(name)
    return run_or_queue(ctx, partial(requests.request_retry, name=name), loaded, run_log_choice, queue=queue)


@click.command("pause", cls=FlowCommand)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@module_option
@run_log_options
@click.pass_obj
def pause_command(output: Output, names: tuple[str, ...], module: str | None, run_log_choice: RunLogOptions) -> None:
    """Stop firing pipelines until they are unpaused; `flow run` still runs them."""
    _set(output, names, module, run_log_choice, paused=True)


@click.command("unpause", cls=FlowCommand)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@module_option
@run_log_options
@click.pass_obj
def unpause_command(output: Output, names: tuple[str, ...], module: str | None, run_log_choice: RunLogOptions) -> None:
    """Fire paused pipelines again."""
    _set(output, names, module, run_log_choice, paused=False)


@click.command("send", cls=FlowCommand)
@click.argument("message", metavar="MESSAGE")
@module_option
@run_log_options
@click.pass_obj
def send_command(output: Output, message: str, module: str | None, run_log_choice: RunLogOptions) -> None:
    """Send a message: the next cycle of a scheduler or run-due fires the workflows with on_message="MESSAGE"."""
    modules.load_module(module)
    fired = triggers.workflows_for_message(message)
    with closing(run_log_choice.for_changing()) as run_log:
        triggers.send_message(run_log, message)
    output.result({"message": message, "workflows": fired}, f"{message} is sent; it fires {', '.join(fired)}")


def _set(output: Output, names: tuple[str, ...], module: str | None, choice: RunLogOptions, *, paused: bool) -> None:
    modules.load_module(module)
    jobs: list[str] = []
    for name in names:
        flow = workflow.workflows().get(name)
        jobs += flow.jobs if flow is not None else [registry.get_pipeline(name).spec.name]
    with closing(choice.for_changing()) as run_log:
        for name in jobs:
            (requests.pause_pipeline if paused else requests.unpause_pipeline)(run_log, name)
        known = run_log.paused()
    document = {"paused": [{"name": item.name, "at": item.at, "by": item.by} for item in known.values()]}
    output.result(document, "\n".join(f"{name} is {'paused' if paused else 'no longer paused'}" for name in jobs))
