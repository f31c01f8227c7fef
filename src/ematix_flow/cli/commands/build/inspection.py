"""The commands `flow preview` and `flow validate`: the plan of a run, and whether source, target and declaration fit."""

from __future__ import annotations

import click

from ematix_flow.cli.flags import module_option
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.loading import module as modules
from ematix_flow.cli.render.output import Output
from ematix_flow.cli.render.progress import progress_for
from ematix_flow.config import files
from ematix_flow.foundation import exit_codes


@click.command("preview", cls=FlowCommand)
@click.argument("name")
@module_option
@click.option("--rows", type=click.IntRange(min=0), default=0, metavar="N", help="show N prepared rows as well")
@click.pass_obj
@files.reading_once()
def preview_command(output: Output, name: str, module: str | None, rows: int) -> None:
    """Show what a run would do: source, path, steps, DDL, estimated rows and parallelism; nothing is changed."""
    modules.load_module(module)
    (spec,) = modules.chosen_pipelines([name], everything=False)
    from ematix_flow.engine.batch import preview

    with progress_for(name, output), modules.stdout_to_stderr():
        plan = preview.preview(spec, rows=rows)
    if output.json:
        output.document(plan.to_dict())
    else:
        output.data(plan.to_text())


@click.command("validate", cls=FlowCommand)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "everything", is_flag=True, help="every pipeline of the module")
@module_option
@click.pass_obj
@files.reading_once()
def validate_command(output: Output, names: tuple[str, ...], everything: bool, module: str | None) -> int:
    """Check source, target and declaration against the real systems; nothing is changed."""
    modules.load_module(module)
    specs = modules.chosen_pipelines(names, everything=everything)
    from ematix_flow.engine.batch import preview

    results = []
    for spec in specs:
        with progress_for(spec.name, output), modules.stdout_to_stderr():
            result = preview.validate(spec)
        results.append(result)
        if output.json:
            continue
        if result.ok:
            output.data(f"{result.pipeline_name}: ok")
        for error in result.errors:
            output.info(f"{output.paint('✗', 'red', err=True)} {result.pipeline_name}: {error}")
        if output.verbose:
            for note in result.notes:
                output.info(f"  {note}")
    if output.json:
        plain = [result.to_dict() for result in results]
        output.document(plain[0] if len(plain) == 1 and not everything else plain)
    return exit_codes.OK if all(result.ok for result in results) else exit_codes.VALIDATION
