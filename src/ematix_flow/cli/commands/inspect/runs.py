"""The command `flow runs`: the run history."""

from __future__ import annotations

from contextlib import closing

import click

from ematix_flow.cli.commands.inspect.runs_compare import run_of
from ematix_flow.cli.flags import run_log_options, unwatched_options
from ematix_flow.cli.lazy import FlowGroup, LazyCommand
from ematix_flow.cli.loading.run_log_choice import RunLogOptions
from ematix_flow.cli.render.advice import short_run_id
from ematix_flow.cli.render.cost_lines import fact_lines, target_lines
from ematix_flow.cli.render.explain import explain_duration
from ematix_flow.cli.render.figures import RunFigures, targets_of
from ematix_flow.cli.render.output import Output, labelled_lines
from ematix_flow.cli.render.units import format_duration, format_local_time
from ematix_flow.run_log.records import STATUSES, RunRecord
from ematix_flow.run_log.worker import DIED, shown_status

_HEADER = ("RUN", "PIPELINE", "STATUS", "STARTED", "TOOK", "ROWS")
_COUNTS = ("rows_read", "rows_inserted", "rows_updated", "rows_closed", "rows_deleted", "rows_unchanged")


group = FlowGroup(
    "runs",
    default="list",
    lazy={
        "tail": LazyCommand("inspect.runs_control:tail_command", "print runs as they start and end"),
        "restart": LazyCommand(
            "inspect.runs_control:restart_command", "run the pipeline of an earlier run again, from a step"
        ),
        "resume": LazyCommand("inspect.runs_control:resume_command", "continue where a failed run ended"),
        "cancel": LazyCommand("inspect.runs_control:cancel_command", "stop a run"),
        "compare": LazyCommand("inspect.runs_compare", "show what changed from one run to another"),
    },
    help="Show and control the runs in the run history.",
)


@group.command("list", short_help="list recent runs, the newest first")
@click.option("-p", "--pipeline", help="only runs of this pipeline")
@click.option("--status", type=click.Choice(STATUSES), help="only runs with this status")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="show at most N runs")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="skip the newest N runs")
@unwatched_options
@run_log_options
@click.pass_obj
def list_command(output: Output, pipeline: str | None, status: str | None, limit: int, offset: int,
                 run_log_choice: RunLogOptions) -> None:  # fmt: skip
    """List recent runs, the newest first."""
    with closing(run_log_choice.for_reading()) as run_log:
        records, total = run_log.list_runs(pipeline=pipeline, status=status, limit=limit, offset=offset)
    if output.json:
        runs = [{**record.to_summary_dict(), "status": shown_status(record)} for record in records]
        output.document({"runs": runs, "total": total, "limit": limit, "offset": offset})
        return
    if not records:
        output.info(f"no runs in {run_log_choice.display()}" if not total else f"no more than {total} runs")
        return
    output.table([_row(record) for record in records], header=_HEADER)
    if total > offset + len(records):
        output.info(f"{len(records)} of {total} runs; more with --limit or --offset")


@group.command("show", short_help="show everything about one run, and why it took so long")
@click.argument("run", metavar="RUN")
@run_log_options
@click.pass_obj
def show_command(output: Output, run: str, run_log_choice: RunLogOptions) -> None:
    """Show everything about one run, and why it took so long; a prefix of its id is enough."""
    with closing(run_log_choice.for_reading()) as run_log:
        record = run_of(run_log, run, run_log_choice)
    if output.json:
        why = explain_duration(RunFigures.of(record), failed=record.status == "failed")
        output.document({**record.to_detail_dict(), "status": shown_status(record), "why": why})
        return
    for line in _details(record, verbose=output.verbose):
        output.data(line)


def _row(record: RunRecord) -> tuple[str, ...]:
    return (
        short_run_id(record.run_id),
        record.pipeline,
        shown_status(record),
        format_local_time(record.started_at),
        format_duration(record.duration_ms),
        _rows(record),
    )


def _rows(record: RunRecord) -> str:
    """Return the row counts summed over all targets, or the error of a failed run."""
    if record.error_summary:
        return record.error_summary.splitlines()[0]
    sums = {word: sum(int(target.get(word) or 0) for target in targets_of(record)) for word in _COUNTS}
    counts = [f"{number:,} {word.removeprefix('rows_')}" for word, number in sums.items() if number]
    return ", ".join(counts) or "-"


def _details(record: RunRecord, *, verbose: bool) -> list[str]:
    status = shown_status(record)
    figures = RunFigures.of(record)
    facts = [
        ("run", record.run_id),
        ("pipeline", record.pipeline),
        ("status", f"{status}: its process ended without a word" if status == DIED else status),
        ("kind", record.kind),
        ("attempt", str(record.attempt)),
        ("restart", _restart(record)),
        ("started", format_local_time(record.started_at)),
        ("finished", format_local_time(record.finished_at) if record.finished_at else "-"),
        ("took", format_duration(record.duration_ms)),
        ("failed at", record.failed_step or ""),
        ("window", str(record.extras.get("window") or "")),
        ("watermark", record.failed_watermark or ""),
        ("error", record.error_summary or ""),
        *_error_facts(record),
        *fact_lines(figures, failed=record.status == "failed", verbose=verbose),
    ]
    lines = labelled_lines(facts, width=10)
    for target in figures.targets:
        counted = ", ".join(f"{target[word]:,} {word.removeprefix('rows_')}" for word in _COUNTS if target.get(word))
        lines.append(f"{'target':<10}{target.get('table')} on {target.get('connection')}: {target.get('mode')}, "
                     f"{counted or 'no rows'}")  # fmt: skip
        target_facts = [f"{name} {target[name]}" for name in ("watermark", "error") if target.get(name)]
        target_facts += target_lines(target, is_one_of_many=len(figures.targets) > 1)
        lines += [f"{'':<10}{text}" for text in target_facts]
    return lines


def _restart(record: RunRecord) -> str:
    """Return which run of the stream failed before this restart, and its error; empty if it is no restart."""
    before, why = record.extras.get("restart_of"), record.extras.get("restart_after")
    return f"of {before}, after: {why}" if before else ""


def _error_facts(record: RunRecord) -> list[tuple[str, str]]:
    error = record.extras.get("error")
    if not isinstance(error, dict):
        return []
    return [("where", str(error.get("where") or "")), ("hint", str(error.get("hint") or ""))]
