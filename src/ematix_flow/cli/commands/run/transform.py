"""The command `flow transform`: lists named transforms and runs them on their own."""

from __future__ import annotations

import click

from ematix_flow.cli.flags import module_option
from ematix_flow.cli.lazy import FlowGroup
from ematix_flow.cli.loading import module as modules
from ematix_flow.cli.render.output import Output
from ematix_flow.declare import registry

group = FlowGroup("transform", default="list", help="List and run named transforms.")


@group.command("list", short_help="list the transforms of a module")
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


@group.command("run", short_help="run one transform now")
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
    measured = ", ".join(f"{key} {value}" for key, value in (result.get("metrics") or {}).items())
    output.result(result, f"{name}: {result['status']}" + (f" ({measured})" if measured else ""))
