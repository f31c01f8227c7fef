"""The command `flow engine`: a Spark process that is kept ready, so that short runs need not start their own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from ematix_flow.cli.lazy import FlowCommand, FlowGroup, Lazy
from ematix_flow.cli.moments import duration
from ematix_flow.cli.output import Output

if TYPE_CHECKING:
    from ematix_flow.engine.warm import Engine

_HERE = "ematix_flow.cli.commands.engine"


@click.command(
    "engine",
    cls=FlowGroup,
    invoke_without_command=True,
    lazy={
        "start": Lazy(_HERE, "start an engine, unless one is running", attribute="start_command"),
        "status": Lazy(_HERE, "list engines: state, idle time, memory", attribute="status_command"),
        "stop": Lazy(_HERE, "stop all engines of this user", attribute="stop_command"),
    },
)
@click.pass_context
def group(ctx: click.Context) -> None:
    """Keep a Spark process ready: runs join it and need not start their own."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(status_command)


@click.command("start", cls=FlowCommand)
@click.option("--idle", metavar="TIME", help="end it after this time without a command (15m, 8h)  [default: 15m]")
@click.pass_obj
def start_command(output: Output, idle: str | None) -> None:
    """Start an engine for this user; commands that need Spark join it from then on."""
    from ematix_flow.config.engine import engine_config
    from ematix_flow.engine import jars, warm
    from ematix_flow.engine.choice import choose

    seconds = _seconds(idle) if idle is not None else engine_config().idle_seconds
    chosen = choose()
    output.talk("starting an engine …")
    began = time.monotonic()
    keep = warm.KeepWarm(True, "flow engine start", seconds)
    engine, is_new = warm.start(
        jars.with_those_at_hand(()), chosen.settings if chosen.is_local else {}, keep=keep, exercise=True
    )
    if output.json:
        output.document({**engine.to_dict(), "started": is_new})
        return
    took = f"ready after {time.monotonic() - began:.1f} s" if is_new else "was there already"
    kept = duration(int(engine.idle_seconds * 1000))
    output.data(f"engine {engine.pid} {took}; it ends after {kept} without a command, or with: flow engine stop")


@click.command("status", cls=FlowCommand)
@click.pass_obj
def status_command(output: Output) -> None:
    """List the engines of this user."""
    from ematix_flow.engine import warm

    found = warm.engines()
    if output.json:
        output.document([engine.to_dict() for engine in found])
        return
    if not found:
        output.talk("no engine is running; start one with: flow engine start")
        return
    output.table(
        [_row(engine) for engine in found], header=("PID", "STATE", "UP", "IDLE", "MEMORY", "HEAP LIMIT", "JARS")
    )


@click.command("stop", cls=FlowCommand)
@click.pass_obj
def stop_command(output: Output) -> None:
    """Stop every engine of this user; a run that is using one fails, and can be run again."""
    from ematix_flow.engine import warm

    ended = [engine.pid for engine in (*warm.engines(), *warm.retired()) if warm.stop(engine)]
    if output.json:
        output.document({"stopped": ended})
    elif ended:
        output.data(f"ended: {', '.join(map(str, ended))}")
    else:
        output.talk("no engine was running")


def _seconds(text: str) -> float:
    from ematix_flow.config.engine import seconds_of

    found = seconds_of(text)
    if not found:
        raise click.UsageError(f"--idle {text} is not a time: use 90s, 30m or 8h", ctx=click.get_current_context())
    return found


def _row(engine: Engine) -> tuple[str, ...]:
    told = engine.to_dict()
    up, idle = (duration(int(str(told[name])) * 1000) for name in ("up_seconds", "idle_seconds"))
    state = ("in use" if told["in_use"] else "ready") if told["alive"] else "does not answer"
    memory = told["memory_bytes"]
    used = f"{int(memory) / 1024**2:,.0f} MB" if isinstance(memory, int) else "-"
    return str(engine.pid), state, up, idle, used, engine.heap, ", ".join(engine.jars) or "-"
