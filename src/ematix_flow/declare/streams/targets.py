"""The targets of a stream: conversion of the target keywords to tables and brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.endpoints import Target
from ematix_flow.declare.loads import LoadSpec, check_mode, load_for
from ematix_flow.declare.pipeline import PipelineOptions, as_tuple
from ematix_flow.declare.streams.placement import (
    BROKER_PLACES,
    DATABASES,
    DELTA,
    FILES,
    PLACES,
    check_connection,
    check_place,
    kind_of,
)
from ematix_flow.declare.streams.spec import BrokerTarget, StreamTarget, TableTarget
from ematix_flow.declare.table import ManagedTable
from ematix_flow.foundation.errors import DeclarationError, WrongType
from ematix_flow.foundation.location import Location

if TYPE_CHECKING:
    from ematix_flow.declare.streams.options import StreamOptions

DEFAULT_CONNECTION = "default"
SINGLE = ("table", "topic", "queue", "partition_key_prefix", "prefix", "message_key_column", "partition_by",
          "primary_key")  # fmt: skip
"""The names of `target_<name>=` for the one target of `target=`."""
_LOADING = ("keys", "update_columns", "compare_columns")
_LISTS = (*_LOADING, "partition_by", "primary_key")
_WRITING = ("parquet_compression", "csv_delimiter", "csv_header", "csv_quote", "csv_escape", "csv_null_value")
_READING = ("csv_read_options", "json_read_options")


def declared_targets(options: StreamOptions) -> tuple[Target, ...]:
    """Return the declared targets, each with its connection, from whichever keywords were used."""
    if (options.target is None) == (options.targets is None):
        raise DeclarationError("give exactly one of target= and targets=", keyword="targets")
    if options.targets is None:
        return (_completed(_single(options), options),)
    for name in SINGLE:
        if getattr(options, f"target_{name}") is not None:
            raise DeclarationError(
                f"target_{name}= goes with target=, not with targets=",
                hint=f"say {name}= in its Target(…)",
                keyword=f"target_{name}",
            )
    listed = as_tuple(options.targets)
    if not listed:
        raise DeclarationError("targets= is empty", hint="name at least one Target", keyword="targets")
    targets = []
    for number, item in enumerate(listed):
        with in_list_position(number):
            targets.append(_completed(_as_target(item), options))
    return tuple(targets)


def stream_targets(
    declared: Sequence[Target], options: StreamOptions, where: Location | None
) -> tuple[StreamTarget, ...]:
    """Return tables and brokers, each with a unique name."""
    targets: list[StreamTarget] = []
    for number, item in enumerate(declared):
        with in_list_position(number):
            stream_target = _broker(item, options) if _is_broker(item) else _table(item, options, where)
            targets.append(replace(stream_target, name=_free_name(stream_target, targets)))
    for name in ("mode", *_LOADING, "event_timestamp_column", "column_map"):
        if getattr(options, name) is not None and not any(isinstance(target, TableTarget) for target in targets):
            raise DeclarationError(f"{name}= is for tables, and no target is one", keyword=name)
    return tuple(targets)


@contextmanager
def in_list_position(number: int) -> Iterator[None]:
    """Add the index in a list to the facts of an error inside the block."""
    try:
        yield
    except DeclarationError as error:
        error.facts.setdefault("number", number)
        raise


def _single(options: StreamOptions) -> Target:
    target = options.target
    values = {name: getattr(options, f"target_{name}") for name in SINGLE}
    if isinstance(target, Target):
        doubled = [name for name, value in values.items() if value is not None]
        if doubled:
            raise DeclarationError(
                f"target= is a Target, which says {doubled[0]}= itself", keyword=f"target_{doubled[0]}"
            )
        return target
    if _is_table(target):
        if values["table"] is not None:
            raise DeclarationError("target= and target_table= both name a table", keyword="target_table")
        return Target(connection=options.target_connection, **{**values, "table": target})
    if options.target_connection is not None:
        raise DeclarationError(
            "target= is a connection already, so target_connection= is one too many",
            hint="target= takes the table then: target=Events, target_connection=warehouse",
            keyword="target_connection",
        )
    check_connection(target, keyword="target")
    return Target(connection=target, **values)


def _as_target(item: Any) -> Target:
    if isinstance(item, Target):
        return item
    if _is_table(item):
        return Target(table=item)
    raise WrongType(
        f"targets= takes Target(…), not {item!r}",
        hint='for example Target(connection=warehouse, table=("public", "events"))',
        keyword="targets",
    )


def _is_table(item: Any) -> bool:
    return (isinstance(item, type) and issubclass(item, ManagedTable)) or isinstance(item, (tuple, list))


def _completed(declared: Target, options: StreamOptions) -> Target:
    """Return the target with its connection, its table as a class or a pair, and lists as tuples."""
    if declared.handle_deletes is not None:
        raise DeclarationError(
            "handle_deletes needs the full source, which a stream never has",
            hint="cdc=CDC(…) applies deletes that messages tell of",
            keyword="target",
        )
    connection = declared.connection if declared.connection is not None else options.target_connection
    connection = connection if connection is not None else DEFAULT_CONNECTION
    check_connection(connection, keyword="target")
    lists: dict[str, Any] = {
        name: _names(getattr(declared, name), name) for name in _LISTS if getattr(declared, name) is not None
    }
    for name in ("topic", "queue", "partition_key_prefix", "prefix", "message_key_column", "event_timestamp_column"):
        value = getattr(declared, name)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise DeclarationError(f"the {name} of a target is a text, not {value!r}", keyword=f"target_{name}")
    if declared.column_map is not None and not isinstance(declared.column_map, Mapping):
        raise DeclarationError("column_map maps columns of the table to those of the rows", keyword="column_map")
    return replace(declared, connection=connection, table=_table_name(declared.table), **lists)


def _table_name(table: Any) -> Any:
    if table is None or isinstance(table, type):
        return table
    parts: tuple[Any, ...] = tuple(table) if isinstance(table, (list, tuple)) else ()
    if isinstance(table, str):
        parts = tuple(table.split(".", 1))
    parts = parts if len(parts) == 2 else ("", *parts)
    if len(parts) != 2 or not all(isinstance(part, str) for part in parts) or not parts[1]:
        raise DeclarationError(
            f"{table!r} does not name a table",
            hint='write ("public", "events"), or a class that @ematix.table decorates',
            keyword="target_table",
        )
    return parts


def _names(value: Any, keyword: str) -> tuple[str, ...]:
    names = as_tuple(value)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise DeclarationError(f"{keyword} is a list of column names, not {value!r}", keyword=keyword)
    return names


def _places_in(declared: Target) -> tuple[str, ...]:
    return tuple(name for name in PLACES if getattr(declared, name) is not None)


def _is_broker(declared: Target) -> bool:
    places = _places_in(declared)
    check_place(kind_of(declared.connection), places, declared=isinstance(declared.table, type))
    return not places or places[0] in BROKER_PLACES


def _broker(declared: Target, options: StreamOptions) -> BrokerTarget:
    places = _places_in(declared)
    place = str(getattr(declared, places[0])) if places else ""
    for name in ("mode", "event_timestamp_column", "column_map", *_LISTS, *_WRITING, *_READING):
        if getattr(declared, name) is not None:
            raise DeclarationError(f"{name} is for tables and files, and a broker takes messages", keyword="target")
    payload = getattr(declared.connection, "payload_format", None) or options.payload or "json"
    name = place or (declared.connection if isinstance(declared.connection, str) else declared.connection.name)
    return BrokerTarget(str(name), declared.connection, place, declared.message_key_column, payload)


def _table(declared: Target, options: StreamOptions, where: Location | None) -> TableTarget:
    _check_options(declared)
    load = _load(declared, options, where) if isinstance(declared.table, type) else None
    schema, table = _place_of(declared, load)
    prefix = str(declared.prefix).strip("/") if declared.prefix is not None else ""
    options_of = declared.write_options
    if load is None:
        options_of |= _loading(declared, options)
    return TableTarget(
        name=prefix or (f"{schema}.{table}" if schema else table),
        connection=declared.connection,
        load=load,
        schema=schema,
        table=table,
        primary_key=load.table.primary_key if load else tuple(declared.primary_key or ()),
        mode=load.strategy.mode if load else _mode(declared, options),
        options=options_of,
    )


def _place_of(declared: Target, load: LoadSpec | None) -> tuple[str, str]:
    if load is not None:
        return load.table.schema, load.table.name
    if declared.prefix is None:
        pair: Any = declared.table  # normalized by `_completed`
        return pair[0], pair[1]
    parts = str(declared.prefix).strip("/").split("/")
    if not all(part.strip() and part not in (".", "..") for part in parts):
        raise DeclarationError(
            f"{declared.prefix!r} is no prefix of a folder", hint='for example "events/raw"', keyword="target_prefix"
        )
    return "/".join(parts[:-1]), parts[-1]


def _mode(declared: Target, options: StreamOptions) -> str:
    mode = declared.mode or options.mode or ("merge" if options.cdc is not None else "append")
    check_mode(mode)
    if mode == "truncate":
        raise DeclarationError(
            "a stream does not truncate: every batch would throw away the one before",
            hint='use mode="append", "merge" or "scd2"',
            keyword="mode",
        )
    return "merge" if mode == "scd1" else mode


def _load(declared: Target, options: StreamOptions, where: Location | None) -> LoadSpec:
    """Return the load that a batch pipeline would declare."""
    if declared.primary_key is not None:
        raise DeclarationError(
            "primary_key is for tables that are not declared; this one has its pk()", keyword="target_primary_key"
        )
    batch_options = PipelineOptions(
        mode=_mode(declared, options),
        keys=_optional_names(options.keys, "keys") or None,
        update_columns=_optional_names(options.update_columns, "update_columns") or None,
        compare_columns=_optional_names(options.compare_columns, "compare_columns") or None,
        event_timestamp_column=options.event_timestamp_column,
        column_map=options.column_map,
    )
    return load_for(replace(declared, mode=None), batch_options, where)


def _loading(declared: Target, options: StreamOptions) -> dict[str, Any]:
    """Return the load options of an undeclared table: its keys and columns."""
    mode = _mode(declared, options)
    load_options: dict[str, Any] = {}
    for name in _LOADING:
        value = getattr(declared, name) or _optional_names(getattr(options, name), name)
        if value:
            load_options[name] = value
    event = declared.event_timestamp_column or options.event_timestamp_column
    if event is not None:
        if mode != "scd2":
            raise DeclarationError(
                f"event_timestamp_column goes with mode='scd2', not with {mode!r}", keyword="event_timestamp_column"
            )
        load_options["event_timestamp_column"] = event
    if declared.column_map is not None or options.column_map is not None:
        raise DeclarationError(
            "column_map is for declared tables", hint="rename columns with transform_sql=", keyword="column_map"
        )
    if mode != "append" and options.cdc is None and not (load_options.get("keys") or declared.primary_key):
        raise DeclarationError(
            f"mode={mode!r} needs keys", hint='add keys=("id",), or declare the table as a class', keyword="keys"
        )
    return load_options


def _optional_names(value: Any, keyword: str) -> tuple[str, ...]:
    return () if value is None else _names(value, keyword)


def _check_options(declared: Target) -> None:
    kind = kind_of(declared.connection)
    if declared.message_key_column is not None:
        raise DeclarationError("message_key_column is for brokers, and this target is a table", keyword="target")
    for name in (*_WRITING, *_READING):
        if getattr(declared, name) is not None and kind in (*DATABASES, *DELTA):
            raise DeclarationError(f"{name} is for files, and this target is {kind}", keyword="target")
    if declared.partition_by is not None and kind in DATABASES:
        raise DeclarationError(f"partition_by is for files and Delta tables, not for {kind}", keyword="target")
    if kind in FILES and declared.primary_key is not None:
        raise DeclarationError("primary_key is for tables, and this target is a folder", keyword="target_primary_key")


def _free_name(target: StreamTarget, others: Sequence[StreamTarget]) -> str:
    """Return the target's name, prefixed by the connection's name if an earlier target has the same."""
    taken = {other.name for other in others}
    if target.name not in taken:
        return target.name
    connection = target.connection if isinstance(target.connection, str) else target.connection.name
    longer = f"{connection}:{target.name}"
    same = any(_place(other) == _place(target) and other.connection == target.connection for other in others)
    if same or longer in taken:
        raise DeclarationError(f"two targets write to {target.name} of {connection}", keyword="targets")
    return longer


def _place(target: StreamTarget) -> tuple[str, str]:
    return ("", target.place) if isinstance(target, BrokerTarget) else (target.schema, target.table)
