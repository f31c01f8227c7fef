"""The command `flow preview`: the plan of a run."""

from __future__ import annotations

import click

from ematix_flow.cli.flags import module_option
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.loading import module as modules
from ematix_flow.cli.render.output import Output
from ematix_flow.cli.render.progress import progress_for
from ematix_flow.config import files


@click.command("preview", cls=FlowCommand)
@click.argument("name")
@module_option
@click.option("--rows", type=click.IntRange(min=0), default=0, metavar="N", help="show N prepared rows as well")
@click.pass_obj
@files.reading_once()
def command(output: Output, name: str, module: str | None, rows: int) -> None:
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
