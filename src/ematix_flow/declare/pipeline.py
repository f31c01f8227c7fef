"""Pipelines as frozen values, built from the keywords of `@ematix.pipeline`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ematix_flow.declare.loads import LoadSpec, incremental_from, load_for
from ematix_flow.declare.retry import RetryPolicy
from ematix_flow.declare.strategy import Incremental
from ematix_flow.foundation.errors import DeclarationError, UnknownKeyword
from ematix_flow.foundation.location import Location
from ematix_flow.foundation.names import nearest

DRIFT_POLICIES = ("error", "warn", "evolve")
PATHS = ("same_db", "cross_db")
_ALIASES = {"continue_on_target_failure": "continue_on_failure"}


class PipelineError(DeclarationError, TypeError):
    """Keywords that do not go together, or a function that cannot be a pipeline."""


@dataclass(frozen=True)
class PipelineSpec:
    """One declared batch load."""

    name: str
    function: Callable[..., Any]
    loads: tuple[LoadSpec, ...]
    source_connection: Any = None
    source_table: str | None = None
    column_map: Mapping[str, str] = field(default_factory=dict)
    schedule: str | None = None
    timezone: str | None = None
    depends_on: tuple[str, ...] = ()
    upstream_freshness_secs: int | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    incremental: Incremental | None = None
    on_drift: str = "error"
    force_path: str | None = None
    continue_on_failure: bool = False
    transforms_pre: tuple[Any, ...] = ()
    transforms_post: tuple[Any, ...] = ()
    continue_on_failure_post: bool = False
    fan_out: bool = False
    quality: Mapping[str, Any] = field(default_factory=dict)
    where: Location | None = None
    options: PipelineOptions | None = field(default=None, repr=False, compare=False)

    def overridden(self, overrides: Mapping[str, Any] | None) -> PipelineSpec:
        """The same declaration with some keywords said differently for one run."""
        if not overrides or self.options is None:
            return self
        checked = PipelineOptions.parse({"name": self.name, **overrides}, self.where)
        changed = {key: getattr(checked, key) for key in ("name", *overrides)}
        return pipeline_from(self.function, replace(self.options, **changed), self.where)

    def writer(self, load: LoadSpec) -> str:
        """Who writes, as commit tokens and watermarks know it."""
        return f"{self.name}::{load.table.qualified}" if self.fan_out else self.name


@dataclass(frozen=True)
class PipelineOptions:
    """Every keyword of `@ematix.pipeline`; the shipped and the documented names."""

    target: Any = None
    targets: Sequence[Any] | None = None
    schedule: str | None = None
    mode: str | None = None
    name: str | None = None
    source_connection: Any = None
    target_connection: Any = None
    source_table: str | None = None
    column_map: Mapping[str, str] | None = None
    keys: Sequence[str] | None = None
    update_columns: Sequence[str] | None = None
    compare_columns: Sequence[str] | None = None
    event_timestamp_column: str | None = None
    handle_deletes: str | None = None
    max_delete_fraction: float = 0.5
    incremental: bool | None = None
    watermark_column: str | None = None
    incremental_column: str | None = None
    watermark_lookback: Any = None
    on_drift: str = "error"
    force_path: str | None = None
    continue_on_failure: bool = False
    transforms_pre: Sequence[Any] | None = None
    transforms_post: Sequence[Any] | None = None
    continue_on_failure_post: bool = False
    ttl: Any = None
    ttl_seconds: float | None = None
    depends_on: Sequence[str] | None = None
    upstream_freshness_secs: int | None = None
    retry: Mapping[str, Any] | None = None
    timezone: str | None = None
    expectations: Any = None
    on_quality_failure: str = "warn"
    freshness_sla: Any = None
    freshness_column: str | None = None
    alert_on_quality_warn: bool = False

    @classmethod
    def parse(cls, given: Mapping[str, Any], where: Location | None) -> PipelineOptions:
        """Refuse unknown keywords, naming the nearest valid one."""
        known = set(cls.__dataclass_fields__)
        values: dict[str, Any] = {}
        for key, value in given.items():
            key = _ALIASES.get(key, key)
            if key not in known:
                near = nearest(key, [*known, *_ALIASES])
                hint = f"did you mean {near}=?" if near else "see docs/pipelines.md for all of them"
                raise UnknownKeyword(f"@ematix.pipeline has no keyword {key!r}", where=where, hint=hint)
            values[key] = value
        return cls(**values)


def pipeline_from(function: Callable[..., Any], options: PipelineOptions, where: Location | None) -> PipelineSpec:
    """Build and check the declaration."""
    try:
        return _build(function, options, where)
    except DeclarationError as exc:
        exc.at(where)
        raise


def _build(function: Callable[..., Any], options: PipelineOptions, where: Location | None) -> PipelineSpec:
    _check_choices(options)
    _check_arity(function, options)
    if (options.target is None) == (options.targets is None):
        raise PipelineError("give exactly one of target= and targets=")
    if options.targets is not None and not options.targets:
        raise PipelineError("targets= is empty", hint="name at least one Target")
    fan_out = options.targets is not None
    asked = options.targets if options.targets is not None else [options.target]
    loads = tuple(load_for(item, options, where) for item in asked)
    quality = {"expectations": options.expectations, "on_quality_failure": options.on_quality_failure,
               "freshness_sla": options.freshness_sla, "freshness_column": options.freshness_column,
               "alert_on_quality_warn": options.alert_on_quality_warn}  # fmt: skip
    return PipelineSpec(
        name=options.name or str(getattr(function, "__name__", "pipeline")),
        function=function,
        loads=loads,
        source_connection=options.source_connection,
        source_table=options.source_table,
        column_map=dict(options.column_map or {}),
        schedule=options.schedule,
        timezone=options.timezone,
        depends_on=tuple(options.depends_on or ()),
        upstream_freshness_secs=options.upstream_freshness_secs,
        retry=RetryPolicy.parse(options.retry),
        incremental=incremental_from(options, loads),
        on_drift=options.on_drift,
        force_path=options.force_path,
        continue_on_failure=options.continue_on_failure,
        transforms_pre=tuple(options.transforms_pre or ()),
        transforms_post=tuple(options.transforms_post or ()),
        continue_on_failure_post=options.continue_on_failure_post,
        fan_out=fan_out,
        quality=quality,
        where=where,
        options=options,
    )


def _check_choices(options: PipelineOptions) -> None:
    if options.on_drift not in DRIFT_POLICIES:
        raise DeclarationError(f"on_drift={options.on_drift!r} is not known", hint='use "error", "warn" or "evolve"')
    if options.force_path is not None and options.force_path not in PATHS:
        raise DeclarationError(f"force_path={options.force_path!r} is not known", hint='use "same_db" or "cross_db"')
    if not 0 <= options.max_delete_fraction <= 1:
        raise DeclarationError("max_delete_fraction is a share between 0 and 1")
    if options.source_table is not None and options.source_table.count(".") != 1:
        raise DeclarationError(f"source_table={options.source_table!r} must be schema.table")
    for transform in options.transforms_pre or ():
        if not hasattr(transform, "pre_transform"):
            raise PipelineError(
                f"transforms_pre does not take {transform!r}",
                hint="use deduplicate_by, filter_where, limit or sample_pct",
            )
    if options.timezone is not None:
        _check_timezone(options.timezone)


def _check_timezone(name: str) -> None:
    import zoneinfo

    try:
        zoneinfo.ZoneInfo(name)
    except Exception as exc:
        raise DeclarationError(
            f"timezone={name!r} is not a known time zone", hint='for example "Europe/Berlin"'
        ) from exc


def positional_parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the parameters a pipeline function takes by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(name for name, item in inspect.signature(function).parameters.items() if item.kind in kinds)


def _check_arity(function: Callable[..., Any], options: PipelineOptions) -> None:
    if not callable(function):
        raise PipelineError("@ematix.pipeline goes on a function")
    names = [name for name in positional_parameters(function) if name not in ("spark", "start", "end")]
    if len(names) > 2:
        raise PipelineError(
            f"{function.__name__} takes {len(names)} arguments",
            hint="take none, (conn), (source, target) and optionally spark",
        )
    if not positional_parameters(function) and options.source_table is None and _returns_nothing(function):
        raise PipelineError(
            f"{function.__name__} takes no argument and returns nothing",
            hint='name the source: source_table="raw.customers"',
        )


def _returns_nothing(function: Callable[..., Any]) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and code.co_consts in ((None,), ()) and not code.co_names
