"""The command `flow backfill`: loads windows of the past, in parallel where their strategy allows it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ematix_flow.cli import exit_codes, report
from ematix_flow.cli import module as modules
from ematix_flow.cli.advice import short
from ematix_flow.cli.flags import module_option, run_log_options
from ematix_flow.cli.history import RunLogChoice
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.module import Loaded, talk_only
from ematix_flow.cli.output import Output
from ematix_flow.cli.progress import Progress, progress_for
from ematix_flow.cli.window_words import backfill_command, counted, shown, zone_of
from ematix_flow.cli.working import stopped_by_sigterm
from ematix_flow.declare import registry
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.windows import Chunk, moment
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import RunCancelled

if TYPE_CHECKING:
    from ematix_flow.orchestrate.backfill import BackfillResult, Tally
    from ematix_flow.orchestrate.backfill_crew import Crew
    from ematix_flow.orchestrate.backfill_plan import Order, Plan
    from ematix_flow.orchestrate.backfill_work import WindowResult
    from ematix_flow.runlog.protocol import RunLog

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
            redo: bool, dry_run: bool, worker: int | None, module: str | None, run_log_choice: RunLogChoice) -> int:  # fmt: skip
    """Load windows of the past that are not loaded yet.

    Each window is loaded once, even after an abort or a repeated command: the run log's interval ledger, which regular
    runs share, and the target record it. Times without an offset are in the pipeline's timezone.
    """
    loaded = modules.load(module)
    spec = registry.get_pipeline(name).spec
    from ematix_flow.engine import context
    from ematix_flow.orchestrate.backfill import Tally
    from ematix_flow.orchestrate.backfill_plan import Order, plan

    context.expect([spec])
    order = Order(
        moment(start, zone=spec.timezone, option="--from") if start else None,
        moment(end, zone=spec.timezone, option="--to") if end else None,
        Chunk.parse(chunk, option="--chunk") if chunk else None,
        resume,
        redo,
    )
    run_log = run_log_choice.for_planning()
    try:
        if worker is not None:
            return _work(spec, run_log, order, parent=worker)
        planned = plan(run_log, spec, order, moment=now(), write=not dry_run)
        _announce(planned, output, parallel)
        if dry_run:
            return _show(planned, output)
        if parallel > 1 and run_log_choice.address.startswith("memory:"):
            raise click.UsageError("--parallel needs a run log that processes can share, not memory://")
        tally = Tally(len(planned.windows))
        result = _carried_out(planned, run_log, output, tally, _crew(planned, loaded, run_log_choice, parallel))
    finally:
        run_log.close()
    return _conclude(result, planned, tally.failure, output, backfill_command(spec, loaded, run_log_choice.option))


def _announce(planned: Plan, output: Output, parallel: int) -> None:
    spec, manner, stretch = planned.spec, planned.manner, planned.range
    done = f", {counted(planned.done, 'window')} done already" if planned.done else ""
    if stretch is None:
        output.talk(f"{spec.name}: nothing to load{done}")
        return
    count = counted(len(planned.windows), "window")
    output.talk(f"{spec.name}: {count} of {planned.chunk}, {shown(stretch, spec)} ({zone_of(spec)}){done}")
    if parallel > 1 and not manner.side_by_side:
        output.talk(f"one window at a time: {manner.reason}")
    if manner.in_order and planned.overtaken:
        mode = spec.loads[0].strategy.mode
        output.warn(
            f"{counted(planned.overtaken, 'window')} of these lie before rows that are loaded already: "
            f"a {mode} puts older rows over newer ones where they have the same key"
        )


def _show(planned: Plan, output: Output) -> int:
    if output.json:
        output.document(
            {
                "pipeline": planned.spec.name,
                "chunk": str(planned.chunk),
                "windows": [str(window) for window in planned.windows],
                "done": planned.done,
                "side_by_side": planned.manner.side_by_side,
                "reason": planned.manner.reason,
            }
        )
        return exit_codes.OK
    for window in planned.windows:
        output.data(f"  {shown(window, planned.spec)}")
    return exit_codes.OK


def _crew(planned: Plan, loaded: Loaded, choice: RunLogChoice, parallel: int) -> Crew | None:
    """Return several worker processes where the windows may be loaded in parallel, else None."""
    from ematix_flow.engine.warm.policy import own_engine
    from ematix_flow.orchestrate.backfill_crew import Crew

    count = min(parallel, len(planned.windows))
    if count < 2 or not planned.manner.side_by_side:
        return None
    own_engine()  # the workers are separate processes: they share one engine, which ends with this command
    return Crew(_arguments(planned, loaded), {"EMATIX_FLOW_RUN_LOG_URL": choice.address}, count)


def _carried_out(planned: Plan, run_log: RunLog, output: Output, tally: Tally, crew: Crew | None) -> BackfillResult:
    from ematix_flow.orchestrate.backfill import carried_out, loader
    from ematix_flow.orchestrate.backfill_work import Worker

    spec = planned.spec
    with progress_for(spec.name, output) as progress:
        _tell_progress(progress, tally)

        def heard(result: WindowResult) -> None:
            tally(result)
            _tell_progress(progress, tally)

        if crew is not None:
            crew.tell, crew.say = heard, output.talk
            with stopped_by_sigterm():
                return carried_out(planned, run_log, tally, crew.work)
        load = loader(spec, run_log)
        worker = Worker(spec, run_log, planned.windows, planned.manner, load, tell=heard, say=output.talk)
        with talk_only(), stopped_by_sigterm():
            return carried_out(planned, run_log, tally, worker.go)


def _tell_progress(progress: Progress, tally: Tally) -> None:
    from ematix_flow.engine.result import Event

    text = f"{tally.done:,} of {tally.windows:,}"
    text += f", {tally.failed:,} failed" if tally.failed else ""
    left = tally.seconds_left
    text += f", about {report.seconds(left)} left" if left is not None else ""
    progress(Event(progress.pipeline, "windows", text, rows=tally.rows or None))


def _arguments(planned: Plan, loaded: Loaded) -> list[str]:
    """Return the arguments of a worker, without the run log's address, which may contain a password."""
    stretch = planned.range
    if stretch is None:
        raise AssertionError("there is nothing to load")
    edges = str(stretch).split("/")
    module = ["--module", loaded.asked] if loaded.asked else []
    return ["backfill", planned.spec.name, "--resume", "--from", edges[0], "--to", edges[1], "--no-progress", *module]


def _work(spec: PipelineSpec, run_log: RunLog, order: Order, *, parent: int) -> int:
    """Load windows as one of several workers: claim them in the ledger and write each outcome as a line of JSON."""
    from ematix_flow.orchestrate.backfill import loader
    from ematix_flow.orchestrate.backfill_plan import plan
    from ematix_flow.orchestrate.backfill_work import FAILED, Worker

    planned = plan(run_log, spec, order, moment=now(), write=False)
    answer, failed = sys.stdout, 0

    def tell(result: WindowResult) -> None:
        nonlocal failed
        failed += result.status == FAILED
        print(json.dumps(result.to_dict()), file=answer, flush=True)

    worker = Worker(
        spec,
        run_log,
        planned.windows,
        planned.manner,
        loader(spec, run_log),
        tell=tell,
        is_over=lambda: os.getppid() != parent,
    )
    try:
        with talk_only(), stopped_by_sigterm():
            worker.go()
    except (KeyboardInterrupt, RunCancelled):
        return exit_codes.INTERRUPTED
    return exit_codes.RUN_FAILED if failed else exit_codes.OK


def _conclude(result: BackfillResult, planned: Plan, failure: WindowResult | None, output: Output, resume: str) -> int:
    code = exit_codes.OK if result.is_complete else exit_codes.RUN_FAILED
    if result.interrupted and not result.is_complete:
        code = exit_codes.INTERRUPTED
    if output.json:
        output.document({**result.to_dict(), "exit_code": code, "next": None if code == exit_codes.OK else resume})
        return code
    told = (
        f"{counted(result.loaded, 'window')} loaded · {counted(result.rows, 'row')} · {report.seconds(result.seconds)}"
    )
    if code == exit_codes.OK:
        if result.windows:
            output.talk(told)
        return code
    for line in _failed_lines(result, planned, failure, output):
        output.talk(line)
    output.talk(f"  {told} · nothing is half loaded")
    output.talk(f"next: {resume}")
    return code


def _failed_lines(result: BackfillResult, planned: Plan, failure: WindowResult | None, output: Output) -> Iterator[str]:
    missing = result.windows - result.loaded
    why = "interrupted: " if result.interrupted else ""
    mark = output.paint("✗", "red", err=True)
    yield f"{mark} {result.pipeline}: {why}{missing:,} of {counted(result.windows, 'window')} not loaded"
    for item in result.failed[:_MOST_LINES]:
        run = f" (run {short(item.run_id)})" if item.run_id else ""
        yield f"  {shown(item.window, planned.spec)}  {item.error.splitlines()[0]}{run}"
        if failure is not None and failure.window == item.window:
            yield from (f"    {text}" for text in (failure.where, failure.hint) if text)
    if len(result.failed) > _MOST_LINES:
        yield f"  … and {len(result.failed) - _MOST_LINES:,} more"
    if failure is not None and failure.is_hopeless and result.left:
        yield f"  {counted(result.left, 'window')} not tried: every one would fail like this"
