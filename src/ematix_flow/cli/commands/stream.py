"""The command `flow stream`: shows the status of streams; stops, rewinds and repairs one."""

from __future__ import annotations

import shlex
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.cli import exit_codes
from ematix_flow.cli.flags import run_log_options
from ematix_flow.cli.history import RunLogChoice
from ematix_flow.cli.lazy import FlowCommand, FlowGroup, Lazy
from ematix_flow.cli.moments import local
from ematix_flow.cli.output import Output
from ematix_flow.cli.stream_choice import chosen, declared, stream_options
from ematix_flow.foundation.errors import FlowError

if TYPE_CHECKING:
    from ematix_flow.declare.streams.spec import StreamSpec
    from ematix_flow.engine.streams.findings import Finding
    from ematix_flow.engine.streams.rewind import Plan
    from ematix_flow.engine.streams.standing import Standing
    from ematix_flow.runlog.protocol import RunLog

_HERE = "ematix_flow.cli.commands.stream"
_HEADER = ("STREAM", "STATUS", "SINCE", "ROWS", "ROWS/S", "BATCH", "LAG", "DEAD", "BEHIND", "RESTARTS")
_COLORS = {"ok": "green", "to do": "yellow", "damaged": "red"}
_WORDS = {"succeeded": "stopped", "never": "never ran"}


@click.command(
    "stream",
    cls=FlowGroup,
    invoke_without_command=True,
    lazy={
        "status": Lazy(_HERE, "show state, throughput and lag", attribute="status_command"),
        "stop": Lazy(_HERE, "stop a stream between two batches", attribute="stop_command"),
        "rewind": Lazy(_HERE, "read again from a point in time or from offsets", attribute="rewind_command"),
        "repair": Lazy(_HERE, "make the safe repairs of a damaged checkpoint", attribute="repair_command"),
    },
)
@click.pass_context
def group(ctx: click.Context) -> None:
    """Show and control the streams that `flow consume` runs."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(status_command)


@click.command("status", cls=FlowCommand)
@click.argument("name", required=False)
@stream_options
@run_log_options
@click.pass_obj
def status_command(output: Output, name: str | None, module: str | None, config: str | None,
                   run_log_choice: RunLogChoice) -> None:  # fmt: skip
    """Show the status of one stream, or of all streams that are declared here or recorded in the run log."""
    from ematix_flow.engine.streams.standing import standing, standings

    names = [] if name is not None else _names(output, module, config)
    run_log = run_log_choice.for_reading()
    try:
        if name is not None:
            found = [standing(run_log, name)]
        elif module is not None or config is not None:
            found = standings(run_log, names)
        else:
            heard = {item.name for item in standings(run_log)}
            found = standings(run_log, heard | set(names))
    finally:
        run_log.close()
    if output.json:
        output.document([item.to_dict() for item in found] if name is None else found[0].to_dict())
    elif name is not None:
        for line in _details(found[0]):
            output.data(line)
    elif found:
        output.table([_row(item) for item in found], header=_HEADER)
    else:
        output.talk(f"no streams in {run_log_choice.shown()}, and none is declared here")


def _names(output: Output, module: str | None, config: str | None) -> list[str]:
    """Return the names of the declared streams; errors of the default module become a warning."""
    try:
        return list(declared(module, config))
    except FlowError as error:
        if module is not None or config is not None:
            raise
        output.warn(f"{error.what}; going on without what it declares")
        return []


@click.command("stop", cls=FlowCommand)
@click.argument("name")
@click.option("--timeout", type=click.FloatRange(min=0), default=120.0, show_default=True, metavar="SECONDS",
              help="how long to wait for the running batch to end")  # fmt: skip
@run_log_options
@click.pass_obj
def stop_command(output: Output, name: str, timeout: float, run_log_choice: RunLogChoice) -> None:
    """Stop a stream between two batches, wherever it runs, and wait until it has ended."""
    from ematix_flow.orchestrate.stream_wishes import stop

    run_log = run_log_choice.for_changing()
    try:
        stopped = stop(run_log, name, seconds=timeout)
    finally:
        run_log.close()
    told = stopped.standing
    if output.json:
        output.document({"pipeline": name, "stopped": told is not None, "standing": told.to_dict() if told else None})
    elif told is None:
        output.talk(f"{name} does not run")
    else:
        output.data(f"{name} has {_word(told)}: {told.rows:,} rows in {told.batches:,} batches since {_at(told)}")


@click.command("rewind", cls=FlowCommand)
@click.argument("name")
@click.option("--to", "to", required=True, metavar="PLACE",
              help='earliest, latest, a time (2026-01-31T10:00:00Z), or offsets ({"events": {"0": 1200}})')  # fmt: skip
@click.option("--preview", is_flag=True, help="only show what would be read again")
@click.option("--yes", is_flag=True, help="proceed even if rows are duplicated or skipped")
@stream_options
@run_log_options
@click.pass_obj
def rewind_command(output: Output, name: str, to: str, preview: bool, yes: bool, module: str | None, config: str | None,
                   run_log_choice: RunLogChoice) -> None:  # fmt: skip
    """Make a stream that is not running start from another position the next time.

    It gets a new checkpoint; the old one is kept. Merge targets can receive rows again without duplicates; others would
    get them twice, which needs --yes.
    """
    from ematix_flow.engine.streams import rewind

    spec, place = chosen(name, module, config), rewind.Destination.of(to)
    if preview:
        _show_plan(output, rewind.plan(spec, place), said=to, done=False)
        return
    run_log = run_log_choice.for_changing()
    try:
        made = rewind.rewind(spec, place, confirmed=yes, run_log=run_log)
    finally:
        run_log.close()
    _show_plan(output, made, said=to, done=True)


@click.command("repair", cls=FlowCommand)
@click.argument("name")
@click.option("--to-batch", type=click.IntRange(min=0), metavar="N",
              help="start a new checkpoint after batch N; later batches are read again")  # fmt: skip
@click.option("--yes", is_flag=True, help="also make repairs that may duplicate rows or discard learned columns")
@stream_options
@run_log_options
@click.pass_obj
def repair_command(output: Output, name: str, to_batch: int | None, yes: bool, module: str | None, config: str | None,
                   run_log_choice: RunLogChoice) -> int:  # fmt: skip
    """Make the safe repairs of a stream's damaged checkpoint; it must not run. `flow doctor checkpoint` only checks."""
    from ematix_flow.engine.streams.checkup import repair
    from ematix_flow.engine.streams.findings import is_damaged

    spec = chosen(name, module, config)
    run_log = run_log_choice.for_changing()
    if to_batch is not None:
        _begin_behind(output, spec, to_batch, run_log, yes=yes)
        return exit_codes.OK
    try:
        made = repair(spec, confirmed=yes, run_log=run_log)
    finally:
        run_log.close()
    if output.json:
        steps = {"done": [step.to_dict() for step in made.done], "waiting": [step.to_dict() for step in made.waiting]}
        output.document({"pipeline": spec.name, **steps, "findings": [item.to_dict() for item in made.findings]})
    else:
        for step in made.done:
            output.data(f"done: {step.says}")
        for step in made.waiting:
            output.data(f"waits for --yes: {step.says}")
        if not made.done and not made.waiting:
            output.talk("there is nothing to repair")
        show_findings(output, made.findings)
    return exit_codes.RUN_FAILED if is_damaged(made.findings) else exit_codes.OK


def _begin_behind(output: Output, spec: StreamSpec, batch: int, run_log: RunLog, *, yes: bool) -> None:
    from ematix_flow.engine.streams import rewind

    try:
        made = rewind.rewind(spec, rewind.behind(spec, batch), confirmed=yes, run_log=run_log)
    finally:
        run_log.close()
    _show_plan(output, made, said=made.start, done=True)


def show_findings(output: Output, findings: Any) -> None:
    """Print one line per finding, and the next step where there is one."""
    width = max((len(item.about) for item in findings), default=0)
    for item in findings:
        output.data(_finding(output, item, width))


def _finding(output: Output, item: Finding, width: int) -> str:
    status = output.paint(f"{item.status:<8}", _COLORS[item.status])
    follows = f"\n{'':<{width + 11}}next: {item.next}" if item.next else ""
    return f"{item.about:<{width}}  {status} {item.says}{follows}"


def _show_plan(output: Output, plan: Plan, *, said: str, done: bool) -> None:
    if output.json:
        output.document({**plan.to_dict(), "done": done})
        return
    rows = [(step.part, step.here or "-", step.there or "-", _again(step.rows)) for step in plan.steps]
    output.table(rows, header=("PART", "FROM", "TO", "ROWS AGAIN"))
    for text in (*plan.concerns, *plan.notes):
        output.talk(f"note: {text}")
    if done:
        output.data(f"{plan.pipeline} begins there the next time; the old checkpoint is kept at {plan.kept}")
    elif plan.concerns:
        output.talk(f"next: flow stream rewind {shlex.quote(plan.pipeline)} --to {shlex.quote(said)} --yes")


def _again(rows: int | None) -> str:
    if rows is None:
        return "not counted"
    return f"{rows:,}" if rows >= 0 else f"{-rows:,} passed over"


def _row(item: Standing) -> tuple[str, ...]:
    never = item.since is None
    return (
        item.name,
        _word(item),
        _at(item),
        "-" if never else f"{item.rows:,}",
        "-" if never else f"{item.rows_per_second:,.0f}",
        "-" if never else f"{item.batch_seconds:.1f} s",
        _lag(item.lag_rows, item.lag_seconds),
        "-" if item.dlq_depth is None else f"{item.dlq_depth:,}",
        f"{item.targets_behind:,}",
        f"{item.restarts:,}",
    )


def _details(item: Standing) -> list[str]:
    facts = [
        ("stream", item.name),
        ("status", _word(item) if item.status != "died" else "died: its process ended without a word"),
        ("run", item.run_id or ""),
        ("since", _at(item) if item.since else ""),
        ("ended", local(item.ended) if item.ended else ""),
        ("told", local(item.told_at) if item.told_at and item.is_running else ""),
        ("worker", item.worker or ""),
        (
            "rows",
            f"{item.rows:,} in {item.batches:,} batches, {item.rows_per_second:,.0f} rows/s" if item.since else "",
        ),
        ("batch", f"{item.batch_seconds:.1f} s" if item.batches else ""),
        ("dead", _dead(item)),
        ("behind", f"{item.targets_behind:,} micro-batches that targets have missed" if item.targets_behind else ""),
        ("restarts", _restarts(item)),
        ("replay", item.last_replay or ""),
        ("error", item.error or ""),
    ]
    lines = [f"{name:<10}{text}".replace("\n", f"\n{'':<10}") for name, text in facts if text]
    for part, lag in sorted(item.lag.items()):
        rows = lag.get("rows")
        lines.append(f"{'lag':<10}{part}: {_lag(None if rows is None else int(rows), lag.get('seconds'))}")
    return lines


def _dead(item: Standing) -> str:
    if not item.dead_letters and not item.dlq_depth:
        return ""
    there = f"{item.dlq_depth:,} letters are there, " if item.dlq_depth is not None else ""
    look = "" if item.dlq_depth == 0 else f": flow dlq list {item.name}"
    return f"{there}{item.dead_letters:,} messages were set aside by this run{look}"


def _restarts(item: Standing) -> str:
    if not item.restarts:
        return ""
    why = f", the last one after: {item.restart_after}" if item.restart_after else ""
    before = f"\nflow runs show {item.restart_of}" if item.restart_of else ""
    return f"{item.restarts:,}{why}{before}"


def _lag(rows: int | None, seconds: float | None) -> str:
    told = [f"{rows:,} rows"] if rows is not None else []
    if seconds:
        told.append(str(timedelta(seconds=round(seconds))))
    return ", ".join(told) or "-"


def _word(item: Standing) -> str:
    return _WORDS.get(item.status, item.status)


def _at(item: Standing) -> str:
    return local(item.since) if item.since is not None else "-"
