"""The command `flow dry-run`: loads, checks and counts, then rolls back."""

from __future__ import annotations

import click

from ematix_flow.cli.flags import accept_deletes_option, force_path_option, module_option
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.loading import module as modules
from ematix_flow.cli.render import report
from ematix_flow.cli.render.output import Output
from ematix_flow.cli.running.outcome import CommandOutcome
from ematix_flow.cli.running.runner import RunReporter
from ematix_flow.config import files


@click.command("dry-run", cls=FlowCommand)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "everything", is_flag=True, help="every pipeline of the module, dependencies first")
@module_option
@accept_deletes_option
@force_path_option
@click.pass_obj
@files.reading_once()
def command(output: Output, names: tuple[str, ...], everything: bool, module: str | None, accept_deletes: int | None,
            force_path: str | None) -> int:  # fmt: skip
    """Load, check and count, then roll back: nothing is changed."""
    loaded = modules.load_module(module)
    specs = modules.chosen_pipelines(names, everything=everything)
    from ematix_flow.engine.batch import pipeline_run

    overrides = {"force_path": force_path} if force_path else {}
    outcome, width = CommandOutcome(), report.widest_name([spec.name for spec in specs])
    reporter = RunReporter(output, loaded, outcome, width=width, loads=False)
    if not output.json:
        output.data("DRY RUN: everything is rolled back")
    for spec in outcome.runnable(specs, reporter.skipped):
        with reporter.reporting(spec) as run:
            run.result = pipeline_run.dry_run(
                spec, overrides=overrides, accept_deletes=accept_deletes, listener=run.listener
            )
    if output.json:
        output.document(outcome.to_dict())
    output.info(f"{report.summary(**outcome.counts, engine_seconds=None, session=None)} · dry run, nothing was changed")
    return outcome.exit_code
