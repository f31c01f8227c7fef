"""Workflows: groups of jobs, and what fires them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ematix_flow.declare.endpoints import Source
from ematix_flow.declare.streams import registry as streams
from ematix_flow.declare.streams.placement import kind_of
from ematix_flow.foundation.errors import DeclarationError, located
from ematix_flow.foundation.location import Location

ALL, ANY = "all", "any"
LISTENED = ("kafka", "rabbitmq")
"""Kinds of connections whose messages can fire workflows."""


@dataclass(frozen=True)
class TriggerOp:
    """A tree of names of jobs or workflows, all or any of which must succeed.

    >>> AllOf("orders", AnyOf("prices", "rates")).leaves()
    ('orders', 'prices', 'rates')
    """

    kind: str
    members: tuple[Any, ...]

    def leaves(self) -> tuple[str, ...]:
        """Return every name in the tree once, from left to right."""
        names: list[str] = []
        for member in self.members:
            names.extend(member.leaves() if isinstance(member, TriggerOp) else [member])
        return tuple(dict.fromkeys(names))


def AllOf(*members: Any) -> TriggerOp:  # noqa: N802  a documented name
    """Return a trigger that fires when all members have succeeded."""
    return _op(ALL, members)


def AnyOf(*members: Any) -> TriggerOp:  # noqa: N802
    """Return a trigger that fires when any member has succeeded."""
    return _op(ANY, members)


def _op(kind: str, members: Sequence[Any]) -> TriggerOp:
    if not members:
        raise DeclarationError("a trigger names no job", hint='for example AllOf("orders", "customers")')
    for member in members:
        if not isinstance(member, (str, TriggerOp)) or member == "":
            raise DeclarationError(f"a trigger does not take {member!r}", hint="names, AllOf(…) and AnyOf(…) only")
    _refuse_repeated("a trigger names", [member for member in members if isinstance(member, str)])
    return TriggerOp(kind, tuple(members))


@dataclass(frozen=True)
class Workflow:
    """Jobs that one trigger or schedule fires together, in the order of their depends_on."""

    name: str
    jobs: tuple[str, ...]
    triggered_by: TriggerOp | None = None
    schedule: str | None = None
    timezone: str | None = None
    on_message: Any = None
    where: Location | None = None

    @property
    def triggered_by_leaves(self) -> tuple[str, ...]:
        """The names that its trigger depends on."""
        return self.triggered_by.leaves() if self.triggered_by else ()


_workflows: dict[str, Workflow] = {}


def register_workflow(*, name: str, jobs: Any, triggered_by: Any = None, schedule: str | None = None,
                      timezone: str | None = None, on_message: Any = None, depends_on: Any = None,
                      where: Location | None = None) -> Workflow:  # fmt: skip
    """Check and register a workflow; warn about jobs that it takes over from another one."""
    with located(where):
        workflow = Workflow(
            name, _jobs(name, jobs), _trigger(triggered_by), schedule, timezone, on_message=on_message, where=where
        )
        _check(workflow, depends_on)
    for other in _workflows.values():
        moved = sorted(set(other.jobs) & set(workflow.jobs)) if other.name != workflow.name else []
        if moved:
            warnings.warn(f"{', '.join(moved)} moves from workflow {other.name} to {workflow.name}", stacklevel=3)
    _workflows[workflow.name] = workflow
    return workflow


def workflows() -> dict[str, Workflow]:
    """Return all workflows by name."""
    return dict(_workflows)


def clear() -> None:
    """Remove all workflows; for tests."""
    _workflows.clear()


def _jobs(name: str, jobs: Any) -> tuple[str, ...]:
    """Return the names of the jobs, each of which is given as a name or as a pipeline."""
    listed = (jobs,) if isinstance(jobs, str) or not isinstance(jobs, Iterable) else tuple(jobs)
    if not name or jobs is None or not listed:
        raise DeclarationError("a workflow needs a name and at least one job")
    names = tuple(getattr(job, "name", job) for job in listed)
    for job in names:
        if not isinstance(job, str) or not job:
            raise DeclarationError(
                f"workflow {name}: a job is a pipeline or its name, not {job!r}",
                hint='for example jobs=["orders", "customers"]',
            )
    _refuse_repeated(f"workflow {name} names the job", names)
    return names


def _refuse_repeated(subject: str, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DeclarationError(f"{subject} {', '.join(twice)} twice", hint="name each once")


def _trigger(value: Any) -> TriggerOp | None:
    if value is None or isinstance(value, TriggerOp):
        return value
    return _op(ALL, (value,) if isinstance(value, str) else tuple(value))


def _check_message(workflow: Workflow) -> None:
    """Raise DeclarationError unless on_message is a name, or a source whose deliveries are confirmed one by one."""
    message = workflow.on_message
    if message is None or (isinstance(message, str) and message):
        return
    if not isinstance(message, Source):
        raise DeclarationError(
            f"workflow {workflow.name}: on_message takes the name of a message or a Source, not {message!r}",
            hint='on_message="orders_arrived", or on_message=Source(kafka_prod, "orders")',
        )
    kind = kind_of(message.connection)
    if kind is not None and kind not in LISTENED:
        raise DeclarationError(
            f"workflow {workflow.name}: messages of {kind} cannot fire a workflow",
            hint="use a source of Kafka or RabbitMQ; or a stream that reads it and sends a message: flow send NAME",
        )


def _check(workflow: Workflow, depends_on: Any) -> None:
    if depends_on is not None:
        raise DeclarationError(
            f"workflow {workflow.name} takes no depends_on", hint="jobs have depends_on=; a workflow has triggered_by="
        )
    fired_by = [item for item in (workflow.triggered_by, workflow.schedule, workflow.on_message) if item is not None]
    if workflow.on_message is not None and len(fired_by) > 1:
        raise DeclarationError(f"workflow {workflow.name}: on_message stands alone", hint="remove the other trigger")
    _check_message(workflow)
    if workflow.timezone is not None and workflow.schedule is None:
        raise DeclarationError(f"workflow {workflow.name} has a timezone and no schedule", hint="add schedule=")
    running = [job for job in workflow.jobs if streams.find(job) is not None]
    if running and fired_by:
        raise DeclarationError(
            f"workflow {workflow.name} has the stream {running[0]!r}, which runs all the time and is not fired",
            hint="give the other jobs a workflow of their own",
        )
    if not fired_by and not running:
        raise DeclarationError(
            f"nothing fires workflow {workflow.name}", hint="give it schedule=, triggered_by= or on_message="
        )
    if workflow.triggered_by is not None and workflow.name in workflow.triggered_by_leaves:
        raise DeclarationError(f"workflow {workflow.name} waits for itself", hint="remove it from triggered_by")
