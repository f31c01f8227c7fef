"""The command `flow gaps`: the loaded and the missing windows of a pipeline."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from ematix_flow.cli.flags import module_option, run_log_options
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.loading import module as modules
from ematix_flow.cli.loading.run_log_choice import RunLogOptions
from ematix_flow.cli.render.advice import short_run_id
from ematix_flow.cli.render.output import Output
from ematix_flow.cli.render.window_text import backfill_command, format_count, format_window, time_zone_of
from ematix_flow.declare import registry
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.windows import DataWindow
from ematix_flow.foundation import exit_codes
from ematix_flow.foundation.clock import now

if TYPE_CHECKING:
    from ematix_flow.backfill.gaps import TimelineSegment


@click.command("gaps", cls=FlowCommand)
@click.argument("name")
@click.option("--check", is_flag=True, help="exit with 1 if windows are missing")
@module_option
@run_log_options
@click.pass_obj
def command(output: Output, name: str, check: bool, module: str | None, run_log_choice: RunLogOptions) -> int:
    """Show which windows of a pipeline are loaded, and which are missing.

    The range begins with the first recorded window, or at window_start. It ends with the last recorded window or, with
    a schedule, with the last window that is due, if that is later.
    """
    loaded = modules.load_module(module)
    spec = registry.get_pipeline(name).spec
    from ematix_flow.backfill.gaps import gaps_of

    with closing(run_log_choice.for_reading()) as run_log:
        gaps = gaps_of(spec, run_log.intervals(spec.name), moment=now())
    fill = None
    if gaps.missing:  # windows that are loaded between two gaps are not loaded again
        stretch = None if gaps.is_known else DataWindow(gaps.missing[0].start, gaps.missing[-1].end)
        fill = backfill_command(spec, loaded, run_log_choice.option, window=stretch)
    code = exit_codes.RUN_FAILED if check and gaps.missing else exit_codes.OK
    if output.json:
        output.document({**gaps.to_dict(), "zone": time_zone_of(spec), "next": fill, "exit_code": code})
        return code
    if not gaps.stretches:
        output.info(f"no window of {name} is known in {run_log_choice.display()}")
        output.info(f"next: flow backfill {loaded.option}{name} --from 2026-01-31")
        return code
    output.table([_line(item, spec) for item in gaps.stretches])
    output.info(f"{format_count(len(gaps.missing), 'gap') if gaps.missing else 'no gap'} ({time_zone_of(spec)})")
    if fill:
        output.info(f"next: {fill}")
    return code


def _line(item: TimelineSegment, spec: PipelineSpec) -> tuple[str, str, str]:
    detail = format_count(item.windows, "window") if item.windows and item.state != "failed" else ""
    if item.state == "failed":
        run = f", run {short_run_id(item.run_id)}" if item.run_id else ""
        detail = f"{(item.error or 'the reason was not recorded').splitlines()[0]} (attempt {item.attempt}{run})"
    return (item.state, format_window(item.window, spec), detail)
