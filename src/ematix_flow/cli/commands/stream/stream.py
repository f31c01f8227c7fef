"""The command `flow stream`: shows the status of streams; stops, rewinds and repairs one."""

from __future__ import annotations

import shlex
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.cli.flags import run_log_options
from ematix_flow.cli.lazy import FlowGroup
from ematix_flow.cli.loading.run_log_choice import RunLogOptions
from ematix_flow.cli.loading.stream_choice import chosen_stream, declared_streams, stream_options
from ematix_flow.cli.render.output import Output, labelled_lines
from ematix_flow.cli.render.units import format_local_time
from ematix_flow.foundation import exit_codes
from ematix_flow.foundation.errors import FlowError

if TYPE_CHECKING:
    from ematix_flow.streaming.admin.check_findings import Finding
    from ematix_flow.streaming.admin.rewind import RewindPlan
    from ematix_flow.streaming.admin.status import StreamStatus

_HEADER = ("STREAM", "STATUS", "SINCE", "ROWS", "ROWS/S", "BATCH", "LAG", "DEAD", "BEHIND", "RESTARTS")
_COLORS = {"ok": "green", "to do": "yellow", "damaged": "red"}
_WORDS = {"succeeded": "stopped", "never": "never ran"}


group = FlowGroup("stream", default="status", help="Show and control the streams that `flow consume` runs.")


@group.command("status", short_help="show state, throughput and lag")
@click.argument("name", required=False)
@stream_options
@run_log_options
@click.pass_obj
def status_command(output: Output, name: str | None, module: str | None, config: str | None,
                   run_log_choice: RunLogOptions) -> None:  # fmt: skip
    """Show the status of one stream, or of all streams that are declared here or recorded in the run log."""
    from ematix_flow.streaming.admin.status import stream_status, stream_statuses

    names = [] if name is not None else _names(output, module, config)
    with closing(run_log_choice.for_reading()) as run_log:
        if name is not None:
            statuses = [stream_status(run_log, name)]
        elif module is not None or config is not None:
            statuses = stream_statuses(run_log, names)
        else:
            known_names = {item.name for item in stream_statuses(run_log)}
            statuses = stream_statuses(run_log, known_names | set(names))
    if output.json:
        output.document([item.to_dict() for item in statuses] if name is None else statuses[0].to_dict())
    elif name is not None:
        for line in _details(statuses[0]):
            output.data(line)
    elif statuses:
        output.table([_row(item) for item in statuses], header=_HEADER)
    else:
        output.info(f"no streams in {run_log_choice.display()}, and none is declared here")


def _names(output: Output, module: str | None, config: str | None) -> list[str]:
    """Return the names of the declared streams; errors of the default module become a warning."""
    try:
        return list(declared_streams(module, config))
    except FlowError as error:
        if module is not None or config is not None:
            raise
        output.warn(f"{error.what}; going on without what it declares")
        return []


@group.command("stop", short_help="stop a stream between two batches")
@click.argument("name")
@click.option("--timeout", type=click.FloatRange(min=0), default=120.0, show_default=True, metavar="SECONDS",
              help="how long to wait for the running batch to end")  # fmt: skip
@run_log_options
@click.pass_obj
def stop_command(output: Output, name: str, timeout: float, run_log_choice: RunLogOptions) -> None:
    """Stop a stream between two batches, wherever it runs, and wait until it has ended."""
    from ematix_flow.scheduler.stream_requests import stop_stream

    with closing(run_log_choice.for_changing()) as run_log:
        stopped = stop_stream(run_log, name, seconds=timeout)
    status = stopped.standing
    if output.json:
        output.document(
            {"pipeline": name, "stopped": status is not None, "standing": status.to_dict() if status else None}
        )
    elif status is None:
        output.info(f"{name} does not run")
    else:
        output.data(
            f"{name} has {_status_word(status)}: {status.rows:,} rows in {status.batches:,} batches since {_local_time(status)}"
        )


@group.command("rewind", short_help="read again from a point in time or from offsets")
@click.argument("name")
@click.option("--to", "to", required=True, metavar="PLACE",
              help='earliest, latest, a time (2026-01-31T10:00:00Z), or offsets ({"events": {"0": 1200}})')  # fmt: skip
@click.option("--preview", is_flag=True, help="only show what would be read again")
@click.option("--yes", is_flag=True, help="proceed even if rows are duplicated or skipped")
@stream_options
@run_log_options
@click.pass_obj
def rewind_command(output: Output, name: str, to: str, preview: bool, yes: bool, module: str | None, config: str | None,
                   run_log_choice: RunLogOptions) -> None:  # fmt: skip
    """Make a stream that is not running start from another position the next time.

    It gets a new checkpoint; the old one is kept. Merge targets can receive rows again without duplicates; others would
    get them twice, which needs --yes.
    """
    from ematix_flow.streaming.admin import rewind

    spec, place = chosen_stream(name, module, config), rewind.RewindTarget.of(to)
    if preview:
        _print_plan(output, rewind.plan_rewind(spec, place), heading=to, done=False)
        return
    with closing(run_log_choice.for_changing()) as run_log:
        plan = rewind.rewind_stream(spec, place, confirmed=yes, run_log=run_log)
    _print_plan(output, plan, heading=to, done=True)


@group.command("repair", short_help="make the safe repairs of a damaged checkpoint")
@click.argument("name")
@click.option("--to-batch", type=click.IntRange(min=0), metavar="N",
              help="start a new checkpoint after batch N; later batches are read again")  # fmt: skip
@click.option("--yes", is_flag=True, help="also make repairs that may duplicate rows or discard learned columns")
@stream_options
@run_log_options
@click.pass_obj
def repair_command(output: Output, name: str, to_batch: int | None, yes: bool, module: str | None, config: str | None,
                   run_log_choice: RunLogOptions) -> int:  # fmt: skip
    """Make the safe repairs of a stream's damaged checkpoint; it must not run. `flow doctor checkpoint` only checks."""
    from ematix_flow.streaming.admin import rewind
    from ematix_flow.streaming.admin.check_findings import is_damaged
    from ematix_flow.streaming.admin.checkpoint_check import repair_checkpoint

    spec = chosen_stream(name, module, config)
    with closing(run_log_choice.for_changing()) as run_log:
        if to_batch is not None:
            plan = rewind.rewind_stream(spec, rewind.offsets_behind(spec, to_batch), confirmed=yes, run_log=run_log)
            _print_plan(output, plan, heading=plan.start, done=True)
            return exit_codes.OK
        result = repair_checkpoint(spec, confirmed=yes, run_log=run_log)
    if output.json:
        steps = {
            "done": [step.to_dict() for step in result.done],
            "waiting": [step.to_dict() for step in result.waiting],
        }
        output.document({"pipeline": spec.name, **steps, "findings": [item.to_dict() for item in result.findings]})
    else:
        for step in result.done:
            output.data(f"done: {step.says}")
        for step in result.waiting:
            output.data(f"waits for --yes: {step.says}")
        if not result.done and not result.waiting:
            output.info("there is nothing to repair")
        print_findings(output, result.findings)
    return exit_codes.RUN_FAILED if is_damaged(result.findings) else exit_codes.OK


def print_findings(output: Output, findings: Any) -> None:
    """Print one line per finding, and the next step where there is one."""
    width = max((len(item.about) for item in findings), default=0)
    for item in findings:
        output.data(_finding(output, item, width))


def _finding(output: Output, item: Finding, width: int) -> str:
    status = output.paint(f"{item.status:<8}", _COLORS[item.status])
    follows = f"\n{'':<{width + 11}}next: {item.next}" if item.next else ""
    return f"{item.about:<{width}}  {status} {item.says}{follows}"


def _print_plan(output: Output, plan: RewindPlan, *, heading: str, done: bool) -> None:
    if output.json:
        output.document({**plan.to_dict(), "done": done})
        return
    rows = [(step.part, step.here or "-", step.there or "-", _rows_read_again(step.rows)) for step in plan.steps]
    output.table(rows, header=("PART", "FROM", "TO", "ROWS AGAIN"))
    for text in (*plan.concerns, *plan.notes):
        output.info(f"note: {text}")
    if done:
        output.data(f"{plan.pipeline} begins there the next time; the old checkpoint is kept at {plan.kept}")
    elif plan.concerns:
        output.info(f"next: flow stream rewind {shlex.quote(plan.pipeline)} --to {shlex.quote(heading)} --yes")


def _rows_read_again(rows: int | None) -> str:
    if rows is None:
        return "not counted"
    return f"{rows:,}" if rows >= 0 else f"{-rows:,} passed over"


def _row(item: StreamStatus) -> tuple[str, ...]:
    never = item.since is None
    return (
        item.name,
        _status_word(item),
        _local_time(item),
        "-" if never else f"{item.rows:,}",
        "-" if never else f"{item.rows_per_second:,.0f}",
        "-" if never else f"{item.batch_seconds:.1f} s",
        _lag(item.lag_rows, item.lag_seconds),
        "-" if item.dlq_depth is None else f"{item.dlq_depth:,}",
        f"{item.targets_behind:,}",
        f"{item.restarts:,}",
    )


def _details(item: StreamStatus) -> list[str]:
    facts = [
        ("stream", item.name),
        ("status", _status_word(item) if item.status != "died" else "died: its process ended without a word"),
        ("run", item.run_id or ""),
        ("since", _local_time(item) if item.since else ""),
        ("ended", format_local_time(item.ended) if item.ended else ""),
        ("reported", format_local_time(item.told_at) if item.told_at and item.is_running else ""),
        ("worker", item.worker or ""),
        (
            "rows",
            f"{item.rows:,} in {item.batches:,} batches, {item.rows_per_second:,.0f} rows/s" if item.since else "",
        ),
        ("batch", f"{item.batch_seconds:.1f} s" if item.batches else ""),
        ("dead", _dead_letter_line(item)),
        ("behind", f"{item.targets_behind:,} micro-batches that targets have missed" if item.targets_behind else ""),
        ("restarts", _restarts(item)),
        ("replay", item.last_replay or ""),
        ("error", item.error or ""),
    ]
    lines = labelled_lines(facts, width=10)
    for part, lag in sorted(item.lag.items()):
        rows = lag.get("rows")
        lines.append(f"{'lag':<10}{part}: {_lag(None if rows is None else int(rows), lag.get('seconds'))}")
    return lines


def _dead_letter_line(item: StreamStatus) -> str:
    if not item.dead_letters and not item.dlq_depth:
        return ""
    kept = f"{item.dlq_depth:,} letters are there, " if item.dlq_depth is not None else ""
    look = "" if item.dlq_depth == 0 else f": flow dlq list {item.name}"
    return f"{kept}{item.dead_letters:,} messages were set aside by this run{look}"


def _restarts(item: StreamStatus) -> str:
    if not item.restarts:
        return ""
    why = f", the last one after: {item.restart_after}" if item.restart_after else ""
    before = f"\nflow runs show {item.restart_of}" if item.restart_of else ""
    return f"{item.restarts:,}{why}{before}"


def _lag(rows: int | None, seconds: float | None) -> str:
    parts = [f"{rows:,} rows"] if rows is not None else []
    if seconds:
        parts.append(str(timedelta(seconds=round(seconds))))
    return ", ".join(parts) or "-"


def _status_word(item: StreamStatus) -> str:
    return _WORDS.get(item.status, item.status)


def _local_time(item: StreamStatus) -> str:
    return format_local_time(item.since) if item.since is not None else "-"
