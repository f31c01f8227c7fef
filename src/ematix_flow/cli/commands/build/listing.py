"""The command `flow list`: the declarations of a module."""

from __future__ import annotations

from typing import Any

import click

from ematix_flow.cli.flags import module_option
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.loading import module as modules
from ematix_flow.cli.render.names import name_of
from ematix_flow.cli.render.output import Output
from ematix_flow.declare import registry
from ematix_flow.declare.loads import LoadSpec
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.streams import registry as streams


@click.command("list", cls=FlowCommand)
@module_option
@click.pass_obj
def command(output: Output, module: str | None) -> None:
    """List the pipelines, streams and transforms of a module, by name."""
    loaded = modules.load_module(module)
    entries = sorted([*_pipelines(), *_streams(), *_transforms()], key=lambda entry: (entry["name"], entry["kind"]))
    if output.json:
        output.document(entries)
        return
    if not entries:
        output.info(f"{loaded.name} declares no pipelines; decorate a function with @ematix.pipeline(…)")
        return
    output.table([_row(entry) for entry in entries])


def _pipelines() -> list[dict[str, Any]]:
    return [_pipeline(declared.spec) for declared in registry.pipelines().values()]


def _pipeline(spec: PipelineSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "kind": "pipeline",
        "schedule": spec.schedule,
        "timezone": spec.timezone,
        "depends_on": list(spec.depends_on),
        "targets": [_target(load) for load in spec.loads],
        "where": str(spec.where) if spec.where else None,
    }


def _target(load: LoadSpec) -> dict[str, str]:
    return {"table": load.table.qualified, "connection": name_of(load.connection), "mode": load.strategy.mode}


def _streams() -> list[dict[str, Any]]:
    return [
        {
            "name": spec.name,
            "kind": "stream",
            "schedule": None,
            "sources": [{"query": one.query, "connection": name_of(one.connection)} for one in spec.sources],
            "targets": [
                {"table": one.name, "connection": name_of(one.connection), "mode": getattr(one, "mode", "send")}
                for one in spec.targets
            ],
            "where": str(spec.where) if spec.where else None,
        }
        for spec in (stream.spec for stream in streams.streams().values())
    ]


def _transforms() -> list[dict[str, Any]]:
    return [
        {
            "name": transform.name,
            "kind": "transform",
            "schedule": transform.schedule,
            "where": str(transform.where) if transform.where else None,
        }
        for transform in registry.transforms().values()
    ]


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    targets = ", ".join(f"{one['mode']} → {one['table']} ({one['connection']})" for one in entry.get("targets", ()))
    after = f"after {', '.join(entry['depends_on'])}" if entry.get("depends_on") else ""
    schedule = entry["schedule"] or ("(always on)" if entry["kind"] == "stream" else "(unscheduled)")
    return entry["name"], entry["kind"], schedule, "  ".join(filter(None, (targets, after)))
