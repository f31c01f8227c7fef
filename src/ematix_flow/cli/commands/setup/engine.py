"""The command `flow engine`: a Spark process that is kept ready, so that short runs need not start their own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from ematix_flow.cli.lazy import FlowGroup
from ematix_flow.cli.render.output import Output
from ematix_flow.cli.render.units import format_seconds

if TYPE_CHECKING:
    from ematix_flow.engine.warm import WarmEngine


group = FlowGroup(
    "engine",
    default="status",
    help="Keep a Spark process ready: runs join it and need not start their own.",
)


@group.command("start", short_help="start an engine, unless one is running")
@click.option("--idle", metavar="TIME", help="end it after this time without a command (15m, 8h)  [default: 15m]")
@click.pass_obj
def start_command(output: Output, idle: str | None) -> None:
    """Start an engine for this user; commands that need Spark join it from then on."""
    from ematix_flow.config.engine import engine_config
    from ematix_flow.engine import warm
    from ematix_flow.engine.session import jars
    from ematix_flow.engine.session.engine_choice import choose_engine

    seconds = _seconds(idle) if idle is not None else engine_config().idle_seconds
    chosen = choose_engine()
    output.info("starting an engine …")
    began = time.monotonic()
    keep = warm.KeepWarm(True, "flow engine start", seconds)
    engine, is_new = warm.start_engine(
        jars.with_cached_sets(()), chosen.settings if chosen.is_local else {}, keep=keep, exercise=True
    )
    took = f"ready after {time.monotonic() - began:.1f} s" if is_new else "was there already"
    kept = format_seconds(engine.idle_seconds)
    text = f"engine {engine.pid} {took}; it ends after {kept} without a command, or with: flow engine stop"
    output.result({**engine.to_dict(), "started": is_new}, text)


@group.command("status", short_help="list engines: state, idle time, memory")
@click.pass_obj
def status_command(output: Output) -> None:
    """List the engines of this user."""
    from ematix_flow.engine import warm

    engines = warm.engines()
    if output.json:
        output.document([engine.to_dict() for engine in engines])
        return
    if not engines:
        output.info("no engine is running; start one with: flow engine start")
        return
    output.table(
        [_row(engine) for engine in engines], header=("PID", "STATE", "UP", "IDLE", "MEMORY", "HEAP LIMIT", "JARS")
    )


@group.command("stop", short_help="stop all engines of this user")
@click.pass_obj
def stop_command(output: Output) -> None:
    """Stop every engine of this user; a run that is using one fails, and can be run again."""
    from ematix_flow.engine import warm

    ended = [engine.pid for engine in (*warm.engines(), *warm.retired_engines()) if warm.stop_engine(engine)]
    if output.json or ended:
        output.result({"stopped": ended}, f"ended: {', '.join(map(str, ended))}")
    else:
        output.info("no engine was running")


def _seconds(text: str) -> float:
    from ematix_flow.config.engine import parse_seconds

    seconds = parse_seconds(text)
    if not seconds:
        raise click.UsageError(f"--idle {text} is not a time: use 90s, 30m or 8h")
    return seconds


def _row(engine: WarmEngine) -> tuple[str, ...]:
    data = engine.to_dict()
    up, idle = (format_seconds(int(str(data[name]))) for name in ("up_seconds", "idle_seconds"))
    state = ("in use" if data["in_use"] else "ready") if data["alive"] else "does not answer"
    memory = data["memory_bytes"]
    used = f"{int(memory) / 1024**2:,.0f} MB" if isinstance(memory, int) else "-"
    return str(engine.pid), state, up, idle, used, engine.heap, ", ".join(engine.jars) or "-"
