"""Pipelines and workflows as jobs for the scheduler, upstreams first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ematix_flow.declare import registry, workflow
from ematix_flow.declare.endpoints import Source
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.streams import registry as streams
from ematix_flow.declare.workflow import AllOf, AnyOf, TriggerOp, Workflow
from ematix_flow.foundation.errors import DeclarationError, located
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.scheduler import cron
from ematix_flow.scheduler.due import Job
from ematix_flow.scheduler.triggers import message_name


def declared_jobs() -> list[Job]:
    """Return every registered pipeline as a job; raise a DeclarationError for an invalid declaration."""
    specs = {name: declared.spec for name, declared in registry.pipelines().items()}
    registry.check_graph()
    flows = workflow.workflows()
    check_workflows(flows, [*specs, *streams.streams()])
    by_job = {job: flow for flow in flows.values() for job in flow.jobs}
    return [job_of(specs[name], by_job.get(name)) for name in registry.order(specs)]


def job_of(spec: PipelineSpec, flow: Workflow | None = None) -> Job:
    """Return the job of a pipeline; without a schedule it gets the schedule of its workflow."""
    schedule, zone = spec.schedule, spec.timezone
    if schedule is None and flow is not None:
        schedule, zone = flow.schedule, flow.timezone
    if schedule is not None:
        with located(spec.where if spec.schedule else flow.where if flow else None):
            cron.check_schedule(schedule)
    return Job(
        name=spec.name,
        schedule=schedule,
        zone=zone,
        depends_on=spec.depends_on,
        upstream_freshness_secs=spec.upstream_freshness_secs,
        retry=spec.retry,
        trigger=_trigger(flow, spec) if flow is not None else None,
    )


def _trigger(flow: Workflow, spec: PipelineSpec) -> TriggerOp | None:
    """Return the trigger of a pipeline in a workflow; a message counts as a success of the name `message:…`."""
    if flow.on_message is None:
        return flow.triggered_by
    if isinstance(flow.on_message, Source):  # each message requests runs of the first jobs; the other jobs follow those
        upstreams = [name for name in spec.depends_on if name in flow.jobs]
        return AllOf(*upstreams) if upstreams else None
    return AnyOf(message_name(flow.on_message))


def check_workflows(flows: Mapping[str, Workflow], pipelines: Iterable[str]) -> None:
    """Raise a DeclarationError for an undeclared name, or for workflows that wait for each other in a circle."""
    known = set(pipelines)
    for flow in flows.values():
        for name in (*flow.jobs, *flow.triggered_by_leaves):
            if name not in known and not (name in flows and name not in flow.jobs):
                raise DeclarationError(
                    f"workflow {flow.name} names {name!r}, which is not declared",
                    where=flow.where,
                    hint=did_you_mean(name, [*known, *flows]),
                )
    for name in flows:
        _visit(name, flows, [])


def _visit(name: str, flows: Mapping[str, Workflow], path: list[str]) -> None:
    if name in path:
        circle = [*path[path.index(name) :], name]
        raise DeclarationError(
            f"workflows wait for each other in a circle: {' → '.join(circle)}",
            where=flows[name].where,
            hint="remove one of these triggers",
        )
    of_job = {job: flow.name for flow in flows.values() for job in flow.jobs}
    for leaf in flows[name].triggered_by_leaves:
        upstream = leaf if leaf in flows else of_job.get(leaf)
        if upstream is not None:
            _visit(upstream, flows, [*path, name])
