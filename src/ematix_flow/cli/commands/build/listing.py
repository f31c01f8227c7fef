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
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.registry import TransformSpec
from ematix_flow.declare.streams import registry as streams
from ematix_flow.declare.streams.spec import StreamSpec


@click.command("list", cls=FlowCommand)
@module_option
@click.pass_obj
def command(output: Output, module: str | None) -> None:
    """List the pipelines, streams and transforms of a module, by name."""
    loaded = modules.load_module(module)
    pipelines = [_pipeline(declared.spec) for declared in registry.pipelines().values()]
    of_streams = [_stream(declared.spec) for declared in streams.streams().values()]
    transforms = [_entry(transform, "transform", transform.schedule) for transform in registry.transforms().values()]
    entries = sorted([*pipelines, *of_streams, *transforms], key=lambda entry: (entry["name"], entry["kind"]))
    empty = f"{loaded.name} declares no pipelines; decorate a function with @ematix.pipeline(…)"
    output.listing(entries, [_row(entry) for entry in entries], empty=empty)


def _entry(
    declared: PipelineSpec | StreamSpec | TransformSpec, kind: str, schedule: str | None, **more: Any
) -> dict[str, Any]:
    where = str(declared.where) if declared.where else None
    return {"name": declared.name, "kind": kind, "schedule": schedule, **more, "where": where}


def _pipeline(spec: PipelineSpec) -> dict[str, Any]:
    targets = [_target(load.table.qualified, load.connection, load.strategy.mode) for load in spec.loads]
    more = {"timezone": spec.timezone, "depends_on": list(spec.depends_on), "targets": targets}
    return _entry(spec, "pipeline", spec.schedule, **more)


def _stream(spec: StreamSpec) -> dict[str, Any]:
    sources = [{"query": one.query, "connection": name_of(one.connection)} for one in spec.sources]
    targets = [_target(one.name, one.connection, getattr(one, "mode", "send")) for one in spec.targets]
    return _entry(spec, "stream", None, sources=sources, targets=targets)


def _target(table: str, connection: Any, mode: str) -> dict[str, str]:
    return {"table": table, "connection": name_of(connection), "mode": mode}


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    targets = ", ".join(f"{one['mode']} → {one['table']} ({one['connection']})" for one in entry.get("targets", ()))
    after = f"after {', '.join(entry['depends_on'])}" if entry.get("depends_on") else ""
    schedule = entry["schedule"] or ("(always on)" if entry["kind"] == "stream" else "(unscheduled)")
    return entry["name"], entry["kind"], schedule, "  ".join(filter(None, (targets, after)))
