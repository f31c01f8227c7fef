"""The registry of the pipelines and transforms that are declared in this process, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from ematix_flow.declare import workflow
from ematix_flow.declare.declared_names import DeclaredNames
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.streams import registry as streams
from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.foundation.location import Location
from ematix_flow.foundation.names import did_you_mean


@dataclass(frozen=True)
class TransformSpec:
    """A named function that runs after loads, or on its own."""

    name: str
    function: Callable[..., Any]
    arity: int
    target_connection: Any = None
    schedule: str | None = None
    where: Location | None = None


@dataclass(frozen=True)
class TransformRef:
    """A reference to a transform or pipeline by name, resolved when it runs."""

    name: str


class DeclaredPipeline(Protocol):
    """A decorated function with its declaration."""

    spec: PipelineSpec


_HINT = "rename the function or pass name="
_pipelines = DeclaredNames[DeclaredPipeline]("pipeline", hint=_HINT, functions_redeclare=True)
_transforms = DeclaredNames[TransformSpec]("transform", hint=_HINT, functions_redeclare=True)
pipelines, get_pipeline = _pipelines.all, _pipelines.get
transforms, get_transform = _transforms.all, _transforms.get
_freshness: dict[str, timedelta | None] = {}
_ages = [0]


def register_pipeline(pipeline: DeclaredPipeline) -> None:
    """Register a pipeline; raise DeclarationError if another place declares its name."""
    _pipelines.declare(pipeline.spec.name, pipeline, pipeline.spec.where)


def register_transform(transform: TransformSpec) -> None:
    """Register a transform, by the same rules as a pipeline."""
    _transforms.declare(transform.name, transform, transform.where)


def register_freshness(name: str, allowed: timedelta | None) -> None:
    """Set the maximum age of a pipeline's last success, overriding its declaration; None for any age."""
    _freshness[name] = allowed


def freshness() -> dict[str, timedelta]:
    """Return the maximum age of the last success of pipelines, by name; without those that have no limit."""
    declared = {name: pipeline.spec.quality.freshness_sla for name, pipeline in pipelines().items()}
    return {name: allowed for name, allowed in {**declared, **_freshness}.items() if allowed is not None}


def age() -> int:
    """Return how often the registry was cleared; caches about pipelines are valid for one age."""
    return _ages[0]


def clear() -> None:
    """Remove all declarations; for tests."""
    _ages[0] += 1
    _pipelines.clear()
    _transforms.clear()
    _freshness.clear()
    workflow.clear()
    streams.clear()


def check_graph() -> None:
    """Raise DeclarationError for unknown names in depends_on, for cycles, and for names that a stream shares."""
    known = pipelines()
    for name, stream in streams.streams().items():
        if name in known:
            raise DeclarationError(
                f"{name!r} is the name of a pipeline and of a stream",
                where=stream.spec.where,
                hint="rename one: they share the run log",
            )
    for pipeline in known.values():
        spec = pipeline.spec
        for upstream in spec.depends_on:
            if upstream not in known:
                raise DeclarationError(
                    f"{spec.name} depends on {upstream!r}, which is not declared",
                    where=spec.where,
                    hint=did_you_mean(upstream, known),
                )
    order(known)


def order(names: Iterable[str]) -> list[str]:
    """Return the names, each pipeline after its dependencies; raise DeclarationError with the path of a cycle."""
    known, wanted = pipelines(), list(names)
    done: list[str] = []
    path: list[str] = []

    def visit(name: str) -> None:
        if name in done:
            return
        if name in path:
            cycle = [*path[path.index(name) :], name]
            raise DeclarationError(
                f"depends_on goes in a circle: {' → '.join(cycle)}",
                where=known[name].spec.where,
                hint="remove one of these edges",
            )
        path.append(name)
        for upstream in known[name].spec.depends_on:
            if upstream in known:  # also one that is not requested: it may connect two that are
                visit(upstream)
        path.pop()
        done.append(name)

    for name in wanted:
        visit(name)
    return [name for name in done if name in wanted]
