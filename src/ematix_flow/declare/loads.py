"""One target of a pipeline: the table, the connection and the strategy with its keys resolved."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.endpoints import Target
from ematix_flow.declare.quality.checks import Check
from ematix_flow.declare.quality.expectations import checks_of
from ematix_flow.declare.strategy import Append, Deletes, Incremental, Merge, Scd2, Strategy, Truncate
from ematix_flow.declare.table import ManagedTable, TableSpec
from ematix_flow.declare.types import Column, TimestampTZ
from ematix_flow.foundation.errors import DeclarationError, MissingColumn, check_choice
from ematix_flow.foundation.location import Location
from ematix_flow.foundation.names import did_you_mean

if TYPE_CHECKING:
    from ematix_flow.declare.pipeline import PipelineOptions

MODES = ("append", "truncate", "merge", "scd1", "scd2")
_ALL_OTHERS = "all non-key columns"


class ModeError(DeclarationError, TypeError):
    """Raised for a mode that is missing or does not fit its options."""


class UnknownMode(DeclarationError, NotImplementedError):
    """Raised for a mode that does not exist."""


def check_mode(mode: str) -> None:
    """Raise UnknownMode unless a mode exists."""
    if mode not in MODES:
        raise UnknownMode(f"mode={mode!r} is not known", hint=did_you_mean(str(mode), MODES), keyword="mode")


@dataclass(frozen=True)
class LoadSpec:
    """The declared load of one target."""

    table: TableSpec
    connection: Any
    strategy: Strategy
    mode: str = ""
    """The strategy's name as the user wrote it: scd1 is a merge."""
    keys_reason: str = ""
    compare_reason: str = ""
    column_map: Mapping[str, str] = field(default_factory=dict)
    write_options: Mapping[str, Any] = field(default_factory=dict)
    max_delete_fraction: float = 0.5
    checks: tuple[Check, ...] = ()
    """The checks that its rows must pass before they are published."""


def load_for(item: Any, options: PipelineOptions, where: Location | None) -> LoadSpec:
    """Return the load of one `target=` class or one `Target`."""
    target = item if isinstance(item, Target) else Target(table=item)
    table = target.table
    if not (isinstance(table, type) and issubclass(table, ManagedTable)):
        raise ModeError(
            f"target {table!r} is not a table",
            hint="decorate the class with @ematix.table, or derive from ManagedTable",
        )
    spec = table.spec()
    strategy, keys_reason, compare_reason = strategy_for(spec, _load_options(target, options), where)
    return LoadSpec(
        table=_with_event_time(spec, strategy),
        connection=target.connection or options.target_connection or "default",
        strategy=strategy,
        mode=target.mode or options.mode or "",
        keys_reason=keys_reason,
        compare_reason=compare_reason,
        column_map=dict(target.column_map or options.column_map or {}),
        write_options=target.write_options,
        max_delete_fraction=options.max_delete_fraction,
        checks=checks_of(spec, options.expectations, options.freshness_column, options.freshness_sla, where),
    )


def _with_event_time(spec: TableSpec, strategy: Strategy) -> TableSpec:
    """Return the columns to read: those of the table, and the event time if only the source has it."""
    if not isinstance(strategy, Scd2) or strategy.event_time is None or strategy.keeps_event_time:
        return spec
    return replace(spec, columns=(*spec.columns, Column(TimestampTZ(), nullable=False, name=strategy.event_time)))


@dataclass(frozen=True)
class LoadOptions:
    """The user's options for one load, before keys are resolved."""

    mode: str | None
    keys: Sequence[str] | None = None
    update_columns: Sequence[str] | None = None
    compare_columns: Sequence[str] | None = None
    event_timestamp_column: str | None = None
    handle_deletes: str | None = None
    ttl: timedelta | None = None


def _load_options(target: Target, options: PipelineOptions) -> LoadOptions:
    return LoadOptions(
        mode=target.mode or options.mode,
        keys=target.keys or options.keys,
        update_columns=target.update_columns or options.update_columns,
        compare_columns=target.compare_columns or options.compare_columns,
        event_timestamp_column=target.event_timestamp_column or options.event_timestamp_column,
        handle_deletes=target.handle_deletes or options.handle_deletes,
        ttl=duration(options.ttl if options.ttl is not None else options.ttl_seconds, "ttl"),
    )


def strategy_for(spec: TableSpec, options: LoadOptions, where: Location | None) -> tuple[Strategy, str, str]:
    """Return the strategy with its keys and columns, and the reasons for the keys and the compared columns."""
    if options.mode is None:
        raise ModeError("mode= is missing", hint='one of "append", "truncate", "merge", "scd2"')
    check_mode(options.mode)
    deletes = _deletes(options)
    if options.mode != "scd2" and (options.event_timestamp_column or options.ttl):
        option = "event_timestamp_column" if options.event_timestamp_column else "ttl"
        raise DeclarationError(f"{option} goes with mode='scd2', not with {options.mode!r}")
    if options.mode == "append":
        return Append(), "", ""
    if options.mode == "truncate":
        return Truncate(), "", ""
    keys, keys_reason = resolve_keys(spec, options.keys, where)
    if options.mode == "scd2":
        return _scd2(spec, options, keys, deletes, keys_reason)
    others = tuple(name for name in spec.column_names if name not in keys)
    update = _checked_columns(spec, options.update_columns, "update_columns") or others
    compare = _checked_columns(spec, options.compare_columns, "compare_columns") or update
    reason = next((f"{name}=" for name in ("compare_columns", "update_columns") if getattr(options, name)), _ALL_OTHERS)
    return Merge(keys, compare, update, deletes), keys_reason, reason


def _scd2(
    spec: TableSpec, options: LoadOptions, keys: tuple[str, ...], deletes: Deletes | None, keys_reason: str
) -> tuple[Strategy, str, str]:
    event = options.event_timestamp_column
    declares_it = event is None or event in spec.column_names
    if event is not None and declares_it and spec.column(event).type.kind not in ("timestamp_tz", "timestamp", "date"):
        raise DeclarationError(f"event_timestamp_column {event!r} must be a date or timestamp")
    others = tuple(name for name in spec.column_names if name not in keys and name != event)
    compare = _checked_columns(spec, options.compare_columns, "compare_columns") or others
    if not compare:
        raise DeclarationError(
            f"{spec.qualified} has no column to compare",
            hint="scd2 needs at least one column that is not part of the key",
        )
    reason = "compare_columns=" if options.compare_columns else _ALL_OTHERS
    return Scd2(keys, compare, event, options.ttl, deletes, declares_it), keys_reason, reason


def resolve_keys(
    spec: TableSpec, requested: Sequence[str] | None, where: Location | None
) -> tuple[tuple[str, ...], str]:
    """Return merge keys and their origin, in the documented order: keys=, __merge_keys__, first natural key, pk()."""
    if requested:
        return _checked_columns(spec, requested, "keys"), "keys= on the pipeline"
    primary = spec.primary_key
    if spec.merge_keys:
        keys, reason = _checked_columns(spec, spec.merge_keys, "__merge_keys__"), "__merge_keys__ on the table"
    elif spec.unique:
        keys, reason = spec.unique[0], "first natural_key() group"
    elif primary:
        return primary, "pk()"
    else:
        raise DeclarationError(
            f"{spec.qualified} has no key to merge on", hint="mark one with pk() or natural_key(), or pass keys=(...)"
        )
    if primary and keys != primary:
        text = f"{spec.qualified}: merging on {', '.join(keys)} ({reason}), which is not the primary key {', '.join(primary)}"
        place = where or Location("<unknown>", 0)
        warnings.warn_explicit(f"{text}; pass keys= to silence this", UserWarning, place.file, place.line)
    return keys, reason


def _checked_columns(spec: TableSpec, names: Iterable[str] | None, option: str) -> tuple[str, ...]:
    if names is None:
        return ()
    if isinstance(names, str):
        names = (names,)
    chosen = tuple(names)
    for name in chosen:
        if name not in spec.column_names:
            raise MissingColumn(
                f"{option} names {name!r}, which {spec.qualified} does not declare",
                hint=did_you_mean(name, spec.column_names),
            )
    return chosen


def _deletes(options: LoadOptions) -> Deletes | None:
    if options.handle_deletes is None:
        return None
    check_choice("handle_deletes", options.handle_deletes, ("hard", "soft"))
    if options.mode in ("append", "truncate"):
        raise DeclarationError(f"handle_deletes goes with merge and scd2, not with {options.mode!r}")
    return Deletes(options.handle_deletes)


def incremental_from(options: PipelineOptions, loads: Sequence[LoadSpec]) -> Incremental | None:
    """Return the incremental read, from either spelling of its column; None for a full read."""
    column = options.watermark_column or options.incremental_column
    if column is None:
        if options.incremental:
            raise DeclarationError("incremental=True needs watermark_column=")
        if options.watermark_lookback is not None:
            raise DeclarationError("watermark_lookback needs watermark_column=")
        return None
    if options.incremental is False:
        return None
    for load in loads:
        _checked_columns(load.table, [column], "watermark_column")
        if isinstance(load.strategy, Truncate):
            raise DeclarationError(
                "an incremental read would truncate rows it does not read again", hint='use mode="merge"'
            )
        if getattr(load.strategy, "deletes", None) is not None:
            raise DeclarationError("handle_deletes needs the full source, and incremental reads only a part of it")
    return Incremental(column, duration(options.watermark_lookback, "watermark_lookback"))


def duration(value: Any, option: str) -> timedelta | None:
    """Return a timedelta from a timedelta or from seconds."""
    if value is None or isinstance(value, timedelta):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return timedelta(seconds=value)
    raise DeclarationError(f"{option} takes a timedelta or seconds, not {value!r}")
