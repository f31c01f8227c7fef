"""`flow engine`: one Spark process kept ready, so that short runs need not start their own."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import click

from ematix_flow.cli.lazy import FlowCommand, FlowGroup, Lazy
from ematix_flow.cli.moments import duration
from ematix_flow.cli.output import Output

if TYPE_CHECKING:
    from ematix_flow.engine.warm import Engine

_HERE = "ematix_flow.cli.commands.engine"
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


@click.command(
    "engine",
    cls=FlowGroup,
    invoke_without_command=True,
    lazy={
        "start": Lazy(_HERE, "start one, unless it is there", attribute="start_command"),
        "status": Lazy(_HERE, "which there are, and since when nobody has needed them", attribute="status_command"),
        "stop": Lazy(_HERE, "end them", attribute="stop_command"),
    },
)
@click.pass_context
def group(ctx: click.Context) -> None:
    """Keep a Spark process ready: runs join it and need not start their own."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(status_command)


@click.command("start", cls=FlowCommand)
@click.option("--idle", default="30m", metavar="TIME", help="end it when nobody has needed it for so long (30m, 8h)")
@click.pass_obj
def start_command(output: Output, idle: str) -> None:
    """Start an engine for this user; `flow run` and `flow preview` join it from then on."""
    from ematix_flow.engine import jars, warm

    seconds = _seconds(idle)
    output.talk("starting an engine …")
    began = time.monotonic()
    engine, is_new = warm.start(jars.read_lock(), idle_seconds=seconds)
    if output.json:
        output.document({**engine.to_dict(), "started": is_new})
        return
    took = f"ready after {time.monotonic() - began:.1f} s" if is_new else "was there already"
    output.data(f"engine {engine.pid} {took}; it ends when nobody has needed it for {idle}, or with: flow engine stop")


@click.command("status", cls=FlowCommand)
@click.pass_obj
def status_command(output: Output) -> None:
    """Which engines this user has."""
    from ematix_flow.engine import warm

    found = warm.engines()
    if output.json:
        output.document([engine.to_dict() for engine in found])
        return
    if not found:
        output.talk("no engine is running; start one with: flow engine start")
        return
    output.table([_row(engine) for engine in found], header=("PID", "STATE", "UP", "IDLE", "JARS"))


@click.command("stop", cls=FlowCommand)
@click.pass_obj
def stop_command(output: Output) -> None:
    """End every engine of this user; a run that is using one fails, and can be run again."""
    from ematix_flow.engine import warm

    ended = [engine.pid for engine in warm.engines() if warm.stop(engine)]
    if output.json:
        output.document({"stopped": ended})
    elif ended:
        output.data(f"ended: {', '.join(map(str, ended))}")
    else:
        output.talk("no engine was running")


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text.strip().lower())
    if found is None:
        raise click.UsageError(f"--idle {text} is not a time: use 90s, 30m or 8h", ctx=click.get_current_context())
    return float(found[1]) * _UNITS[found[2]]


def _row(engine: Engine) -> tuple[str, ...]:
    told = engine.to_dict()
    up, idle = (duration(int(str(told[name])) * 1000) for name in ("up_seconds", "idle_seconds"))
    state = "ready" if told["alive"] else "dead"
    return str(engine.pid), state, up, idle, ", ".join(engine.jars) or "-"
