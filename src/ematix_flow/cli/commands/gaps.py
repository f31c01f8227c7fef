"""The command `flow gaps`: the loaded and the missing windows of a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ematix_flow.cli import exit_codes
from ematix_flow.cli import module as modules
from ematix_flow.cli.advice import short
from ematix_flow.cli.flags import module_option, run_log_options
from ematix_flow.cli.history import RunLogChoice
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.output import Output
from ematix_flow.cli.window_words import backfill_command, counted, shown, zone_of
from ematix_flow.declare import registry
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.windows import Window
from ematix_flow.foundation.clock import now

if TYPE_CHECKING:
    from ematix_flow.orchestrate.gaps import Stretch


@click.command("gaps", cls=FlowCommand)
@click.argument("name")
@click.option("--check", is_flag=True, help="exit with 1 if windows are missing")
@module_option
@run_log_options
@click.pass_obj
def command(output: Output, name: str, check: bool, module: str | None, run_log_choice: RunLogChoice) -> int:
    """Show which windows of a pipeline are loaded, and which are missing.

    The range begins with the first recorded window, or at window_start. It ends with the last recorded window or, with
    a schedule, with the last window that is due, if that is later.
    """
    loaded = modules.load(module)
    spec = registry.get_pipeline(name).spec
    from ematix_flow.orchestrate.gaps import gaps_of

    run_log = run_log_choice.for_reading()
    try:
        found = gaps_of(spec, run_log.intervals(spec.name), moment=now())
    finally:
        run_log.close()
    fill = None
    if found.missing:  # windows that are loaded between two gaps are not loaded again
        stretch = None if found.is_known else Window(found.missing[0].start, found.missing[-1].end)
        fill = backfill_command(spec, loaded, run_log_choice.option, window=stretch)
    code = exit_codes.RUN_FAILED if check and found.missing else exit_codes.OK
    if output.json:
        output.document({**found.to_dict(), "zone": zone_of(spec), "next": fill, "exit_code": code})
        return code
    if not found.stretches:
        output.talk(f"no window of {name} is known in {run_log_choice.shown()}")
        output.talk(f"next: flow backfill {loaded.option}{name} --from 2026-01-31")
        return code
    output.table([_line(item, spec) for item in found.stretches])
    missing = len(found.missing)
    output.talk(f"{counted(missing, 'gap')} ({zone_of(spec)})" if missing else f"no gap ({zone_of(spec)})")
    if fill:
        output.talk(f"next: {fill}")
    return code


def _line(item: Stretch, spec: PipelineSpec) -> tuple[str, str, str]:
    told = counted(item.windows, "window") if item.windows and item.state != "failed" else ""
    if item.state == "failed":
        run = f", run {short(item.run_id)}" if item.run_id else ""
        told = f"{(item.error or 'nobody knows why').splitlines()[0]} (attempt {item.attempt}{run})"
    return (item.state, shown(item.window, spec), told)
