"""The command `flow dry-run`: loads, checks and counts, then rolls back."""

from __future__ import annotations

import click

from ematix_flow.cli import module as modules
from ematix_flow.cli import report
from ematix_flow.cli.choose import chosen
from ematix_flow.cli.flags import accept_deletes_option, force_path_option, module_option
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.outcome import walk
from ematix_flow.cli.output import Output
from ematix_flow.cli.runner import Runner


@click.command("dry-run", cls=FlowCommand)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "everything", is_flag=True, help="every pipeline of the module, dependencies first")
@module_option
@accept_deletes_option
@force_path_option
@click.pass_obj
def command(output: Output, names: tuple[str, ...], everything: bool, module: str | None, accept_deletes: int | None,
            force_path: str | None) -> int:  # fmt: skip
    """Load, check and count, then roll back: nothing is changed."""
    loaded = modules.load(module)
    specs = chosen(names, everything=everything)
    from ematix_flow.engine import batch

    overrides = {"force_path": force_path} if force_path else {}
    runner = Runner(
        lambda spec, listener: batch.rehearse(
            spec, overrides=overrides, accept_deletes=accept_deletes, listener=listener
        ),
        output=output,
        module=loaded,
        width=report.widest([spec.name for spec in specs]),
        loads=False,
    )
    if not output.json:
        output.data("DRY RUN: everything is rolled back")
    outcome = walk(specs, attempt=runner.attempt, skip=runner.skipped)
    if output.json:
        output.document(outcome.to_dict())
    else:
        told = report.summary(
            succeeded=len(outcome.results),
            failed=len(outcome.failed),
            skipped=len(outcome.skipped),
            engine_seconds=None,
        )
        output.talk(f"{told} · rehearsed, nothing was changed")
    return outcome.exit_code
