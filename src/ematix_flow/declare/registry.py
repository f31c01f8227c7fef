"""The registry of the pipelines and transforms that are declared in this process, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from ematix_flow.declare import workflow
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.streams import registry as streams
from ematix_flow.foundation.errors import DeclarationError, UnknownName
from ematix_flow.foundation.location import DeclaredPlaces, Location
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


_pipelines: dict[str, DeclaredPipeline] = {}
_transforms: dict[str, TransformSpec] = {}
_freshness: dict[str, timedelta | None] = {}
_pipeline_places, _transform_places = DeclaredPlaces(functions_redeclare=True), DeclaredPlaces(functions_redeclare=True)
_ages = [0]


def register_pipeline(pipeline: DeclaredPipeline) -> None:
    """Register a pipeline; raise DeclarationError if another location declares its name, unless `DeclaredPlaces` allows it."""
    spec = pipeline.spec
    _refuse_twice("pipeline", spec.name, spec.where, _pipeline_places)
    _pipelines[spec.name] = pipeline


def register_transform(transform: TransformSpec) -> None:
    """Register a transform, by the same rules as a pipeline."""
    _refuse_twice("transform", transform.name, transform.where, _transform_places)
    _transforms[transform.name] = transform


def _refuse_twice(what: str, name: str, where: Location | None, places: DeclaredPlaces) -> None:
    other = places.declare(name, where)
    if other is not None:
        raise DeclarationError(
            f"a {what} {name!r} is already declared at {other}", where=where, hint="rename the function or pass name="
        )


def register_freshness(name: str, allowed: timedelta | None) -> None:
    """Set the maximum age of a pipeline's last success, overriding its declaration; None for any age."""
    _freshness[name] = allowed


def freshness() -> dict[str, timedelta]:
    """Return the maximum age of the last success of pipelines, by name; without those that have no limit."""
    declared = {name: pipeline.spec.quality.freshness_sla for name, pipeline in _pipelines.items()}
    return {name: allowed for name, allowed in {**declared, **_freshness}.items() if allowed is not None}


def pipelines() -> dict[str, DeclaredPipeline]:
    """Return all pipelines by name, in order of declaration."""
    return dict(_pipelines)


def transforms() -> dict[str, TransformSpec]:
    """Return all transforms by name."""
    return dict(_transforms)


def get_pipeline(name: str) -> DeclaredPipeline:
    """Return the pipeline of that name; raise UnknownName if there is none."""
    _require(_pipelines, name, "pipeline")
    return _pipelines[name]


def get_transform(name: str) -> TransformSpec:
    """Return the transform of that name; raise UnknownName if there is none."""
    _require(_transforms, name, "transform")
    return _transforms[name]


def _require(known: Iterable[str], name: str, what: str) -> None:
    if name not in known:
        raise UnknownName(f"no {what} is called {name!r}", hint=did_you_mean(name, known))


def age() -> int:
    """Return how often the registry was cleared; caches about pipelines are valid for one age."""
    return _ages[0]


def clear() -> None:
    """Remove all declarations; for tests."""
    _ages[0] += 1
    _pipelines.clear()
    _transforms.clear()
    _freshness.clear()
    _pipeline_places.clear()
    _transform_places.clear()
    workflow.clear()
    streams.clear()


def check_graph() -> None:
    """Raise DeclarationError for unknown names in depends_on, for cycles, and for names that a stream shares."""
    for name, stream in streams.streams().items():
        if name in _pipelines:
            raise DeclarationError(
                f"{name!r} is the name of a pipeline and of a stream",
                where=stream.spec.where,
                hint="rename one: they share the run log",
            )
    for pipeline in _pipelines.values():
        spec = pipeline.spec
        for upstream in spec.depends_on:
            if upstream not in _pipelines:
                raise DeclarationError(
                    f"{spec.name} depends on {upstream!r}, which is not declared",
                    where=spec.where,
                    hint=did_you_mean(upstream, _pipelines),
                )
    order(_pipelines)


def order(names: Iterable[str]) -> list[str]:
    """Return the names, each pipeline after its dependencies; raise DeclarationError with the path of a cycle."""
    wanted = list(names)
    done: list[str] = []
    path: list[str] = []

    def visit(name: str) -> None:
        if name in done:
            return
        if name in path:
            cycle = [*path[path.index(name) :], name]
            raise DeclarationError(
                f"depends_on goes in a circle: {' → '.join(cycle)}",
                where=_pipelines[name].spec.where,
                hint="remove one of these edges",
            )
        path.append(name)
        for upstream in _pipelines[name].spec.depends_on:
            if upstream in _pipelines:  # also one that is not requested: it may connect two that are
                visit(upstream)
        path.pop()
        done.append(name)

    for name in wanted:
        visit(name)
    return [name for name in done if name in wanted]
