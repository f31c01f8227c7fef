"""Pipelines by name, and loads without a decorator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ematix_flow.declare import registry
from ematix_flow.declare.pipeline import PipelineOptions, pipeline_from, plain_pipeline
from ematix_flow.declare.pipeline_data import Pipeline, Source, Target
from ematix_flow.declare.retry import RetryPolicy
from ematix_flow.declare.table import ManagedTable
from ematix_flow.decorators import Pipeline as _Declared
from ematix_flow.engine import batch
from ematix_flow.engine import preview as _preview
from ematix_flow.engine.handle import Connection
from ematix_flow.engine.post import ParentContext
from ematix_flow.engine.preview import Preview, ValidateResult
from ematix_flow.engine.result import Result
from ematix_flow.foundation.location import caller
from ematix_flow.runlog import default_run_log

__all__ = [
    "ParentContext", "Pipeline", "RegistryEntry", "RetryPolicy", "ScheduledPipeline", "Source", "Target",
    "ValidateResult", "depends_on_of", "dry_run", "get_pipeline", "list_entries", "list_pipelines", "list_transforms",
    "order_for_run_due", "preview", "register", "retry_policy_of", "run_pipeline", "run_transform", "sync",
    "upstream_freshness_secs_of", "validate",
]  # fmt: skip


@dataclass(frozen=True)
class ScheduledPipeline:
    """A declared pipeline: call `fn` to run it."""

    name: str
    schedule: str | None
    fn: Callable[[], Any]
    timezone: str | None = None


@dataclass(frozen=True)
class RegistryEntry:
    """One name that a module declares: a pipeline or a transform."""

    name: str
    kind: str
    schedule: str | None


def sync(
    *,
    target: type[ManagedTable],
    source: Any,
    target_connection: Any = None,
    mode: str = "append",
    pipeline_name: str | None = None,
    dry_run: bool = False,
    **options: Any,
) -> Result:
    """Load a source into a table now, without declaring a pipeline.

    `source` is SQL on the target's connection, a `Source` or a Spark DataFrame; `options` are further keywords of
    `@ematix.pipeline`. With `dry_run` everything is staged, checked and counted, then rolled back.
    """
    where = caller()
    named = pipeline_name or f"{target.__schema__}.{target.__tablename__}"
    declared = target_connection.declared if isinstance(target_connection, Connection) else target_connection
    parsed = PipelineOptions.parse(
        {"target": target, "target_connection": declared, "mode": mode, "name": named, **options}, where
    )
    spec = pipeline_from(lambda: source, parsed, where)
    return batch.rehearse(spec) if dry_run else batch.run(spec, run_log=default_run_log())


def register(*, name: str, schedule: str | None, depends_on: Sequence[str] | None = None,
             upstream_freshness_secs: int | None = None, retry: Mapping[str, Any] | None = None,
             timezone: str | None = None) -> Callable[[Callable[[], Any]], Callable[[], Any]]:  # fmt: skip
    """Function decorator: make a function that does the whole work itself known as a pipeline."""
    where = caller()

    def decorate(function: Callable[[], Any]) -> Callable[[], Any]:
        spec = plain_pipeline(
            function,
            name=name,
            schedule=schedule,
            depends_on=depends_on,
            upstream_freshness_secs=upstream_freshness_secs,
            retry=retry,
            timezone=timezone,
            where=where,
        )
        registry.register_pipeline(_Declared(spec))
        return function

    return decorate


def list_pipelines() -> list[ScheduledPipeline]:
    """Every declared pipeline, in order of declaration."""
    return [_scheduled(name) for name in registry.pipelines()]


def get_pipeline(name: str) -> ScheduledPipeline:
    """The pipeline of that name; a KeyError with the nearest one otherwise."""
    return _scheduled(name)


def list_entries() -> list[RegistryEntry]:
    """Every pipeline and transform, by name."""
    loads = [RegistryEntry(name, "pipeline", item.spec.schedule) for name, item in registry.pipelines().items()]
    return sorted([*loads, *list_transforms()], key=lambda entry: entry.name)


def list_transforms() -> list[RegistryEntry]:
    """Every transform, by name."""
    found = (RegistryEntry(name, "transform", item.schedule) for name, item in registry.transforms().items())
    return sorted(found, key=lambda entry: entry.name)


def run_pipeline(name: str) -> Result:
    """Run a declared pipeline now."""
    return batch.run(registry.get_pipeline(name).spec, run_log=default_run_log())


def run_transform(name: str) -> dict[str, Any]:
    """Run a declared transform by itself."""
    return batch.run_transform(name)


def preview(name: str, *, dry_run: bool = False) -> Preview | Result:
    """The plan of a declared pipeline; with `dry_run` the result of a rehearsal."""
    spec = registry.get_pipeline(name).spec
    return batch.rehearse(spec) if dry_run else _preview.preview(spec)


def dry_run(name: str) -> Result:
    """Rehearse a declared pipeline: stage, check and count, then roll back."""
    return batch.rehearse(registry.get_pipeline(name).spec)


def validate(name: str) -> ValidateResult:
    """Check a declared pipeline against the real systems; nothing is changed."""
    return _preview.validate(registry.get_pipeline(name).spec)


def depends_on_of(name: str) -> list[str]:
    """The pipelines that must have run before this one."""
    return list(registry.get_pipeline(name).spec.depends_on)


def upstream_freshness_secs_of(name: str) -> int | None:
    """How old the success of an upstream pipeline may be."""
    return registry.get_pipeline(name).spec.upstream_freshness_secs


def retry_policy_of(name: str) -> RetryPolicy:
    """How often and how patiently a pipeline is tried again."""
    return registry.get_pipeline(name).spec.retry


def order_for_run_due(names: Sequence[str]) -> list[str]:
    """The same names, each after those it depends on."""
    for name in names:
        registry.get_pipeline(name)
    return registry.order(names)


def _scheduled(name: str) -> ScheduledPipeline:
    declared = registry.get_pipeline(name)
    spec = declared.spec
    return ScheduledPipeline(name, spec.schedule, lambda: run_pipeline(name), spec.timezone)
