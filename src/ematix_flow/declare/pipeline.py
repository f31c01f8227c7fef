"""Pipelines as frozen values, built from the keywords of `@ematix.pipeline`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ematix_flow.declare.engine import EngineOptions, engine_options
from ematix_flow.declare.loads import LoadSpec, incremental_from, load_for
from ematix_flow.declare.normalizers.pre_transforms import check_transforms
from ematix_flow.declare.quality.expectations import QualitySpec, quality_from
from ematix_flow.declare.retry import RetryPolicy
from ematix_flow.declare.strategy import Incremental
from ematix_flow.declare.streams.spec import DIALECTS
from ematix_flow.declare.udfs import Functions, functions_of
from ematix_flow.declare.windows import WindowSize, parse_instant
from ematix_flow.foundation.errors import DeclarationError, UnknownKeyword, check_choice, located
from ematix_flow.foundation.location import Location
from ematix_flow.foundation.names import nearest_name

DRIFT_POLICIES = ("error", "warn", "evolve")
PATHS = ("same_db", "cross_db")
LANES = ("arrow", "spark")
_ALIASES = {"continue_on_target_failure": "continue_on_failure"}
WINDOW_PARAMETERS = ("start", "end")
MESSAGE_PARAMETER = "message"
_NOT_CONNECTIONS = ("spark", MESSAGE_PARAMETER, *WINDOW_PARAMETERS)


class PipelineError(DeclarationError, TypeError):
    """Raised for keywords that do not fit together, or for a function that cannot be a pipeline."""


@dataclass(frozen=True)
class PipelineSpec:
    """One declared batch load."""

    name: str
    function: Callable[..., Any]
    loads: tuple[LoadSpec, ...]
    """Its targets; none for a plain function that does the work itself."""
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
    force_lane: str | None = None
    engine: EngineOptions = field(default_factory=EngineOptions)
    continue_on_failure: bool = False
    transform_sql: str | None = None
    """The Spark SQL that transforms the source's rows, as the table `source`, before they are normalized."""
    dialect: str = "spark"
    functions: Functions = field(default_factory=Functions)
    transforms_pre: tuple[Any, ...] = ()
    transforms_post: tuple[Any, ...] = ()
    continue_on_failure_post: bool = False
    fan_out: bool = False
    window_start: datetime | None = None
    """The start of the first window that a regular run loads."""
    window_size: WindowSize | None = None
    """The window size of regular runs; their windows end at multiples of it."""
    quality: QualitySpec = field(default_factory=QualitySpec)
    where: Location | None = None
    options: PipelineOptions | None = field(default=None, repr=False, compare=False)

    def overridden(self, overrides: Mapping[str, Any] | None) -> PipelineSpec:
        """Return the declaration with some keywords replaced for one run."""
        if not overrides:
            return self
        if self.options is None:
            raise PipelineError(f"{self.name} is a plain function, which takes no keywords", where=self.where)
        checked = PipelineOptions.parse({"name": self.name, **overrides}, self.where)
        changed = {key: getattr(checked, key) for key in ("name", *(_ALIASES.get(key, key) for key in overrides))}
        return pipeline_from(self.function, replace(self.options, **changed), self.where)

    def writer(self, load: LoadSpec) -> str:
        """Return the writer's name in commit tokens and watermarks."""
        return f"{self.name}::{load.table.qualified}" if self.fan_out else self.name


@dataclass(frozen=True)
class PipelineOptions:
    """The keywords of `@ematix.pipeline`, under all their names but the aliases."""

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
    force_lane: str | None = None
    engine: str | None = None
    peers: Sequence[str] | None = None
    continue_on_failure: bool = False
    transform_sql: str | None = None
    dialect: str = "spark"
    udfs: Sequence[Any] | None = None
    aggregate_udfs: Sequence[Any] | None = None
    transforms_pre: Sequence[Any] | None = None
    transforms_post: Sequence[Any] | None = None
    continue_on_failure_post: bool = False
    ttl: Any = None
    ttl_seconds: float | None = None
    depends_on: Sequence[str] | None = None
    upstream_freshness_secs: int | None = None
    retry: Mapping[str, Any] | None = None
    timezone: str | None = None
    window_start: Any = None
    window_size: str | None = None
    expectations: Any = None
    on_quality_failure: str = "warn"
    freshness_sla: Any = None
    freshness_column: str | None = None
    alert_on_quality_warn: bool = False

    @classmethod
    def parse(cls, keywords: Mapping[str, Any], where: Location | None) -> PipelineOptions:
        """Return the options from keywords; raise UnknownKeyword, with the nearest name, for an unknown one."""
        known = set(cls.__dataclass_fields__)
        values: dict[str, Any] = {}
        for key, value in keywords.items():
            key = _ALIASES.get(key, key)
            if key not in known:
                near = nearest_name(key, [*known, *_ALIASES])
                hint = f"did you mean {near}=?" if near else "see docs/pipelines.md for all of them"
                raise UnknownKeyword(f"@ematix.pipeline has no keyword {key!r}", where=where, hint=hint)
            values[key] = value
        return cls(**values)


def pipeline_from(function: Callable[..., Any], options: PipelineOptions, where: Location | None) -> PipelineSpec:
    """Build and check the declaration; an error contains the location `where`."""
    with located(where):
        return _build(function, options, where)


def _build(function: Callable[..., Any], options: PipelineOptions, where: Location | None) -> PipelineSpec:
    _check_choices(options)
    _check_transform(options)
    _check_arity(function, options)
    if (options.target is None) == (options.targets is None):
        raise PipelineError("give exactly one of target= and targets=")
    if options.targets is not None and not options.targets:
        raise PipelineError("targets= is empty", hint="name at least one Target")
    fan_out = options.targets is not None
    requested = options.targets if options.targets is not None else [options.target]
    quality = quality_from(options)
    loads = tuple(load_for(item, options, where) for item in requested)
    return PipelineSpec(
        name=options.name or str(getattr(function, "__name__", "pipeline")),
        function=function,
        loads=loads,
        source_connection=options.source_connection,
        source_table=options.source_table,
        column_map=dict(options.column_map or {}),
        schedule=options.schedule,
        timezone=options.timezone,
        depends_on=as_tuple(options.depends_on),
        upstream_freshness_secs=options.upstream_freshness_secs,
        retry=RetryPolicy.parse(options.retry),
        incremental=incremental_from(options, loads),
        on_drift=options.on_drift,
        force_path=options.force_path,
        force_lane=options.force_lane,
        engine=engine_options(options.engine, options.peers),
        continue_on_failure=options.continue_on_failure,
        transform_sql=options.transform_sql,
        dialect=options.dialect,
        functions=functions_of(options.udfs, options.aggregate_udfs),
        transforms_pre=as_tuple(options.transforms_pre),
        transforms_post=as_tuple(options.transforms_post),
        continue_on_failure_post=options.continue_on_failure_post,
        fan_out=fan_out,
        window_start=_window_start(options),
        window_size=WindowSize.parse(options.window_size, option="window_size") if options.window_size else None,
        quality=quality,
        where=where,
        options=options,
    )


def plain_pipeline(function: Callable[[], Any], *, name: str, schedule: str | None = None,
                   depends_on: Sequence[str] | None = None, upstream_freshness_secs: int | None = None,
                   retry: Mapping[str, Any] | None = None, timezone: str | None = None,
                   where: Location | None = None) -> PipelineSpec:  # fmt: skip
    """Return the declaration of a function that does the whole work itself and is only scheduled and run."""
    with located(where):
        if not callable(function) or set(positional_parameters(function)) - {*WINDOW_PARAMETERS, MESSAGE_PARAMETER}:
            raise PipelineError(
                f"{name}: a plain pipeline is a function without arguments, or of (start, end) or (message)"
            )
        _check_window(function)
        if timezone is not None:
            _check_timezone(timezone)
        policy = RetryPolicy.parse(retry)
    return PipelineSpec(
        name=name,
        function=function,
        loads=(),
        schedule=schedule,
        timezone=timezone,
        depends_on=as_tuple(depends_on),
        upstream_freshness_secs=upstream_freshness_secs,
        retry=policy,
        where=where,
    )


def as_tuple(value: Any) -> tuple[Any, ...]:
    """Return a list as a tuple, and a single value as a tuple of one; empty for None. A set is sorted.

    >>> as_tuple({"id", "day"})
    ('day', 'id')
    """
    if value is None:
        return ()
    if isinstance(value, (set, frozenset)):  # its own order differs between processes
        return tuple(sorted(value, key=str))
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _check_choices(options: PipelineOptions) -> None:
    check_choice("on_drift", options.on_drift, DRIFT_POLICIES)
    if options.force_path is not None:
        check_choice("force_path", options.force_path, PATHS)
    if options.force_lane is not None:
        check_choice("force_lane", options.force_lane, LANES)
    if not 0 <= options.max_delete_fraction <= 1:
        raise DeclarationError("max_delete_fraction is a share between 0 and 1")
    if options.source_table is not None and options.source_table.count(".") != 1:
        raise DeclarationError(f"source_table={options.source_table!r} must be schema.table")
    check_transforms(as_tuple(options.transforms_pre))
    for transform in as_tuple(options.transforms_post):
        if not isinstance(transform, str) and not callable(transform) and not hasattr(transform, "name"):
            raise PipelineError(
                f"transforms_post does not take {transform!r}",
                hint='use SQL, a function of (conn) or (conn, parent), or ematix.transform_ref("name")',
            )
    if options.timezone is not None:
        _check_timezone(options.timezone)


def _check_transform(options: PipelineOptions) -> None:
    check_choice("dialect", options.dialect, DIALECTS)
    if options.transform_sql is None:
        for option in ("udfs", "aggregate_udfs"):
            if getattr(options, option):
                raise PipelineError(
                    f"{option}= is there, and no transform_sql= that could call them",
                    hint='the source runs its own SQL, Spark runs transform_sql="SELECT … FROM source"',
                )
        return
    if not isinstance(options.transform_sql, str) or not options.transform_sql.strip():
        raise PipelineError("transform_sql= takes a query", hint='for example "SELECT … FROM source"')
    if options.column_map:
        raise PipelineError("column_map does not go with transform_sql", hint="name the columns there, with AS")


def _check_timezone(name: str) -> None:
    import zoneinfo

    try:
        zoneinfo.ZoneInfo(name)
    except Exception as exc:
        raise DeclarationError(
            f"timezone={name!r} is not a known time zone", hint='for example "Europe/Berlin"'
        ) from exc


def positional_parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the parameters that a pipeline function takes by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(name for name, item in inspect.signature(function).parameters.items() if item.kind in kinds)


def connection_parameters(function: Callable[..., Any]) -> list[str]:
    """Return the parameters that receive connections: the source's, then the target's."""
    return [name for name in positional_parameters(function) if name not in _NOT_CONNECTIONS]


def takes_window(function: Callable[..., Any]) -> bool:
    """Return whether the function takes the start and end of the window to load."""
    return set(WINDOW_PARAMETERS) <= set(positional_parameters(function))


def takes_message(function: Callable[..., Any]) -> bool:
    """Return whether the function takes the message that fired it."""
    return MESSAGE_PARAMETER in positional_parameters(function)


def _check_window(function: Callable[..., Any]) -> None:
    taken = set(WINDOW_PARAMETERS) & set(positional_parameters(function))
    if len(taken) == 1:
        raise PipelineError(f"{function.__name__} takes {taken.pop()} alone", hint="a window has a start and an end")


def _window_start(options: PipelineOptions) -> datetime | None:
    if options.window_start is None:
        return None
    return parse_instant(options.window_start, zone=options.timezone, option="window_start")


def _check_arity(function: Callable[..., Any], options: PipelineOptions) -> None:
    if not callable(function):
        raise PipelineError("@ematix.pipeline goes on a function")
    _check_window(function)
    names = connection_parameters(function)
    if len(names) > 2:
        raise PipelineError(
            f"{function.__name__} takes {len(names)} arguments",
            hint="take none, (conn), (source, target) and optionally spark, message, start, end",
        )
    if not positional_parameters(function) and options.source_table is None and returns_nothing(function):
        raise PipelineError(
            f"{function.__name__} takes no argument and returns nothing",
            hint='name the source: source_table="raw.customers"',
        )


def returns_nothing(function: Callable[..., Any]) -> bool:
    """Return whether the body is only `pass`, `...` or a docstring."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_names or code.co_freevars:
        return False
    return all(constant is None or constant == function.__doc__ for constant in code.co_consts)
