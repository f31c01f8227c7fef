"""The command `flow transform`: lists named transforms and runs them on their own."""

from __future__ import annotations

import click

from ematix_flow.cli.flags import module_option
from ematix_flow.cli.lazy import FlowCommand, FlowGroup, LazyCommand
from ematix_flow.cli.loading import module as modules
from ematix_flow.cli.render.output import Output
from ematix_flow.declare import registry

_HERE = "ematix_flow.cli.commands.run.transform"


@click.command(
    "transform",
    cls=FlowGroup,
    invoke_without_command=True,
    lazy={
        "list": LazyCommand(_HERE, "list the transforms of a module", attribute="list_command"),
        "run": LazyCommand(_HERE, "run one transform now", attribute="run_command"),
    },
)
@click.pass_context
def group(ctx: click.Context) -> None:
    """List and run named transforms."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_command)


@click.command("list", cls=FlowCommand)
@module_option
@click.pass_obj
def list_command(output: Output, module: str | None) -> None:
    """List the transforms of a module."""
    loaded = modules.load_module(module)
    transforms = sorted(registry.transforms().values(), key=lambda transform: transform.name)
    if output.json:
        output.document(
            [
                {"name": one.name, "schedule": one.schedule, "where": str(one.where) if one.where else None}
                for one in transforms
            ]
        )
        return
    if not transforms:
        output.info(f"{loaded.name} declares no transforms; decorate a function with @ematix.transform(…)")
    for one in transforms:
        output.data(f"{one.name}\t{one.schedule or '(unscheduled)'}")


@click.command("run", cls=FlowCommand)
@click.argument("name")
@module_option
@click.pass_obj
def run_command(output: Output, name: str, module: str | None) -> None:
    """Run one transform now."""
    modules.load_module(module)
    registry.get_transform(name)
    from ematix_flow.engine.batch import pipeline_run

    with modules.stdout_to_stderr():
        result = pipeline_run.run_transform(name)
    if output.json:
        output.document(result)
        return
    measured = ", ".join(f"{key} {value}" for key, value in (result.get("metrics") or {}).items())
    output.data(f"{name}: {result['status']}" + (f" ({measured})" if measured else ""))
