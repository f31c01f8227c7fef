"""The command `flow backfill`: loads windows of the past, in parallel where their strategy allows it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import click

from ematix_flow.cli.flags import module_option, run_log_options
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.loading import module as modules
from ematix_flow.cli.loading.module import LoadedModule, stdout_to_stderr
from ematix_flow.cli.loading.run_log_choice import RunLogOptions
from ematix_flow.cli.render.advice import short_run_id
from ematix_flow.cli.render.output import Output
from ematix_flow.cli.render.progress import Progress, progress_for
from ematix_flow.cli.render.units import format_seconds
from ematix_flow.cli.render.window_text import backfill_command, format_count, format_window, time_zone_of
from ematix_flow.cli.running.worker import cancelled_by_sigterm
from ematix_flow.declare import registry
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.windows import WindowSize, parse_instant
from ematix_flow.foundation import exit_codes
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import RunCancelled

if TYPE_CHECKING:
    from ematix_flow.backfill.backfill import BackfillProgress, BackfillResult
    from ematix_flow.backfill.plan import BackfillPlan, BackfillRequest
    from ematix_flow.backfill.worker import WindowResult
    from ematix_flow.backfill.workers import WorkerPool
    from ematix_flow.run_log.protocol import RunLog

_MOST_LINES = 10


@click.command("backfill", cls=FlowCommand)
@click.argument("name")
@click.option("--from", "start", metavar="TIME",
              help="start time: 2026-01-31, 2026-01-31T06:00, 2026-01-31T06:00Z (else the pipeline's window_start)")  # fmt: skip
@click.option("--to", "end", metavar="TIME", help="end time, exclusive (else now)")
@click.option("--chunk", metavar="LENGTH",
              help="the length of a window: 15min, 6h, 1d, 1w, 1mo (else the pipeline's window_size, else 1d)")  # fmt: skip
@click.option("--parallel", type=click.IntRange(1, 64), default=1, show_default=True, metavar="N",
              help="load N windows in parallel, each in its own process, where the strategy allows it")  # fmt: skip
@click.option("--resume", is_flag=True, help="only windows that an earlier backfill or run left unloaded")
@click.option(
    "--redo", is_flag=True, help="also load windows that are already loaded; with append, remove their rows first"
)
@click.option("--dry-run", is_flag=True, help="show the windows without loading them")
@click.option("--worker", type=int, hidden=True)
@module_option
@run_log_options
@click.pass_obj
def command(output: Output, name: str, start: str | None, end: str | None, chunk: str | None, parallel: int, resume: bool,
            redo: bool, dry_run: bool, worker: int | None, module: str | None, run_log_choice: RunLogOptions) -> int:  # fmt: skip
    """Load windows of the past that are not loaded yet.

    Each window is loaded once, even after an abort or a repeated command: the run log's interval ledger, which regular
    runs share, and the target record it. Times without an offset are in the pipeline's timezone.
    """
    loaded = modules.load_module(module)
    spec = registry.get_pipeline(name).spec
    from ematix_flow.backfill.backfill import BackfillProgress
    from ematix_flow.backfill.plan import BackfillRequest, plan_backfill
    from ematix_flow.engine.batch import context

    context.announce_pipelines([spec])
    order = BackfillRequest(
        parse_instant(start, zone=spec.timezone, option="--from") if start else None,
        parse_instant(end, zone=spec.timezone, option="--to") if end else None,
        WindowSize.parse(chunk, option="--chunk") if chunk else None,
        resume,
        redo,
    )
    with closing(run_log_choice.for_planning()) as run_log:
        if worker is not None:
            return _run_worker(spec, run_log, order, parent=worker)
        planned = plan_backfill(run_log, spec, order, moment=now(), write=not dry_run)
        _print_plan(planned, output, parallel)
        if dry_run:
            return _show_dry_run(planned, output)
        if parallel > 1 and run_log_choice.address.startswith("memory:"):
            raise click.UsageError("--parallel needs a run log that processes can share, not memory://")
        tally = BackfillProgress(len(planned.windows))
        result = _execute(planned, run_log, output, tally, _crew(planned, loaded, run_log_choice, parallel))
    return _report(result, planned, tally.failure, output, backfill_command(spec, loaded, run_log_choice.option))


def _print_plan(planned: BackfillPlan, output: Output, parallel: int) -> None:
    spec, policy, stretch = planned.spec, planned.policy, planned.range
    done = f", {format_count(planned.done, 'window')} done already" if planned.done else ""
    if stretch is None:
        output.info(f"{spec.name}: nothing to load{done}")
        return
    count = format_count(len(planned.windows), "window")
    output.info(f"{spec.name}: {count} of {planned.chunk}, {format_window(stretch, spec)} ({time_zone_of(spec)}){done}")
    if parallel > 1 and not policy.side_by_side:
        output.info(f"one window at a time: {policy.reason}")
    if policy.in_order and planned.overtaken:
        mode = spec.loads[0].strategy.mode
        output.warn(
            f"{format_count(planned.overtaken, 'window')} of these lie before rows that are loaded already: "
            f"a {mode} puts older rows over newer ones where they have the same key"
        )


def _show_dry_run(planned: BackfillPlan, output: Output) -> int:
    if output.json:
        document = {
            "pipeline": planned.spec.name,
            "chunk": str(planned.chunk),
            "windows": [str(window) for window in planned.windows],
            "done": planned.done,
            "side_by_side": planned.policy.side_by_side,
            "reason": planned.policy.reason,
        }
        output.document(document)
        return exit_codes.OK
    for window in planned.windows:
        output.data(f"  {format_window(window, planned.spec)}")
    return exit_codes.OK


def _crew(planned: BackfillPlan, loaded: LoadedModule, choice: RunLogOptions, parallel: int) -> WorkerPool | None:
    """Return several worker processes where the windows may be loaded in parallel, else None."""
    from ematix_flow.backfill.workers import WorkerPool
    from ematix_flow.engine.warm.policy import share_engine_with_children

    count = min(parallel, len(planned.windows))
    if count < 2 or not planned.policy.side_by_side:
        return None
    share_engine_with_children()  # the workers are separate processes: they share one engine, which ends with this command
    return WorkerPool(_arguments(planned, loaded), {"EMATIX_FLOW_RUN_LOG_URL": choice.address}, count)


def _execute(
    planned: BackfillPlan, run_log: RunLog, output: Output, tally: BackfillProgress, pool: WorkerPool | None
) -> BackfillResult:
    from ematix_flow.backfill.backfill import execute_backfill, window_loader
    from ematix_flow.backfill.worker import BackfillWorker

    spec = planned.spec
    with progress_for(spec.name, output) as progress:
        _show_progress(progress, tally)

        def on_result(result: WindowResult) -> None:
            tally(result)
            _show_progress(progress, tally)

        if pool is not None:
            pool.on_result, pool.report = on_result, output.info
            with cancelled_by_sigterm():
                return execute_backfill(planned, run_log, tally, pool.work)
        load = window_loader(spec, run_log)
        worker = BackfillWorker(
            spec, run_log, planned.windows, planned.policy, load, on_result=on_result, report=output.info
        )
        with stdout_to_stderr(), cancelled_by_sigterm():
            return execute_backfill(planned, run_log, tally, worker.run)


def _show_progress(progress: Progress, tally: BackfillProgress) -> None:
    from ematix_flow.engine.batch.result import ProgressEvent

    text = f"{tally.done:,} of {tally.windows:,}"
    text += f", {tally.failed:,} failed" if tally.failed else ""
    left = tally.seconds_left
    text += f", about {format_seconds(left)} left" if left is not None else ""
    progress(ProgressEvent(progress.pipeline, "windows", text, rows=tally.rows or None))


def _arguments(planned: BackfillPlan, loaded: LoadedModule) -> list[str]:
    """Return the arguments of a worker, without the run log's address, which may contain a password."""
    stretch = planned.range
    if stretch is None:
        raise AssertionError("there is nothing to load")
    edges = str(stretch).split("/")
    module = ["--module", loaded.asked] if loaded.asked else []
    return ["backfill", planned.spec.name, "--resume", "--from", edges[0], "--to", edges[1], "--no-progress", *module]


def _run_worker(spec: PipelineSpec, run_log: RunLog, order: BackfillRequest, *, parent: int) -> int:
    """Load windows as one of several workers: claim them in the ledger and write each outcome as a line of JSON."""
    from ematix_flow.backfill.backfill import window_loader
    from ematix_flow.backfill.plan import plan_backfill
    from ematix_flow.backfill.worker import FAILED, BackfillWorker

    planned = plan_backfill(run_log, spec, order, moment=now(), write=False)
    answer, failed = sys.stdout, 0

    def tell(result: WindowResult) -> None:
        nonlocal failed
        failed += result.status == FAILED
        print(json.dumps(result.to_dict()), file=answer, flush=True)

    worker = BackfillWorker(
        spec,
        run_log,
        planned.windows,
        planned.policy,
        window_loader(spec, run_log),
        on_result=tell,
        is_over=lambda: os.getppid() != parent,
    )
    try:
        with stdout_to_stderr(), cancelled_by_sigterm():
            worker.run()
    except (KeyboardInterrupt, RunCancelled):
        return exit_codes.INTERRUPTED
    return exit_codes.RUN_FAILED if failed else exit_codes.OK


def _report(
    result: BackfillResult, planned: BackfillPlan, failure: WindowResult | None, output: Output, resume: str
) -> int:
    code = exit_codes.OK if result.is_complete else exit_codes.RUN_FAILED
    if result.interrupted and not result.is_complete:
        code = exit_codes.INTERRUPTED
    if output.json:
        output.document({**result.to_dict(), "exit_code": code, "next": None if code == exit_codes.OK else resume})
        return code
    summary = f"{format_count(result.loaded, 'window')} loaded · {format_count(result.rows, 'row')} · {format_seconds(result.seconds)}"
    if code == exit_codes.OK:
        if result.windows:
            output.info(summary)
        return code
    for line in _failed_lines(result, planned, failure, output):
        output.info(line)
    output.info(f"  {summary} · nothing is half loaded")
    output.info(f"next: {resume}")
    return code


def _failed_lines(
    result: BackfillResult, planned: BackfillPlan, failure: WindowResult | None, output: Output
) -> Iterator[str]:
    missing = result.windows - result.loaded
    why = "interrupted: " if result.interrupted else ""
    mark = output.paint("✗", "red", err=True)
    yield f"{mark} {result.pipeline}: {why}{missing:,} of {format_count(result.windows, 'window')} not loaded"
    for item in result.failed[:_MOST_LINES]:
        run = f" (run {short_run_id(item.run_id)})" if item.run_id else ""
        yield f"  {format_window(item.window, planned.spec)}  {item.error.splitlines()[0]}{run}"
        if failure is not None and failure.window == item.window:
            yield from (f"    {text}" for text in (failure.where, failure.hint) if text)
    if len(result.failed) > _MOST_LINES:
        yield f"  … and {len(result.failed) - _MOST_LINES:,} more"
    if failure is not None and failure.is_hopeless and result.left:
        yield f"  {format_count(result.left, 'window')} not tried: every one would fail like this"
