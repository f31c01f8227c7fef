"""The targets of a stream: conversion of the target keywords to tables and brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.endpoints import Target
from ematix_flow.declare.loads import MODES, LoadSpec, UnknownMode, load_for
from ematix_flow.declare.pipeline import PipelineOptions, several
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
from ematix_flow.foundation.names import did_you_mean

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


def said_targets(options: StreamOptions) -> tuple[Target, ...]:
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
    listed = several(options.targets)
    if not listed:
        raise DeclarationError("targets= is empty", hint="name at least one Target", keyword="targets")
    found = []
    for number, item in enumerate(listed):
        with numbered(number):
            found.append(_completed(_as_target(item), options))
    return tuple(found)


def stream_targets(said: Sequence[Target], options: StreamOptions, where: Location | None) -> tuple[StreamTarget, ...]:
    """Return tables and brokers, each with a unique name."""
    found: list[StreamTarget] = []
    for number, item in enumerate(said):
        with numbered(number):
            made = _broker(item, options) if _is_broker(item) else _table(item, options, where)
            found.append(replace(made, name=_free_name(made, found)))
    for name in ("mode", *_LOADING, "event_timestamp_column", "column_map"):
        if getattr(options, name) is not None and not any(isinstance(target, TableTarget) for target in found):
            raise DeclarationError(f"{name}= is for tables, and no target is one", keyword=name)
    return tuple(found)


@contextmanager
def numbered(number: int) -> Iterator[None]:
    """Add the index in a list to the facts of an error inside the block."""
    try:
        yield
    except DeclarationError as error:
        error.facts.setdefault("number", number)
        raise


def _single(options: StreamOptions) -> Target:
    target = options.target
    said = {name: getattr(options, f"target_{name}") for name in SINGLE}
    if isinstance(target, Target):
        doubled = [name for name, value in said.items() if value is not None]
        if doubled:
            raise DeclarationError(
                f"target= is a Target, which says {doubled[0]}= itself", keyword=f"target_{doubled[0]}"
            )
        return target
    if _is_table(target):
        if said["table"] is not None:
            raise DeclarationError("target= and target_table= both name a table", keyword="target_table")
        return Target(connection=options.target_connection, **{**said, "table": target})
    if options.target_connection is not None:
        raise DeclarationError(
            "target= is a connection already, so target_connection= is one too many",
            hint="target= takes the table then: target=Events, target_connection=warehouse",
            keyword="target_connection",
        )
    check_connection(target, keyword="target")
    return Target(connection=target, **said)


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


def _completed(said: Target, options: StreamOptions) -> Target:
    """Return the target with its connection, its table as a class or a pair, and lists as tuples."""
    if said.handle_deletes is not None:
        raise DeclarationError(
            "handle_deletes needs the full source, which a stream never has",
            hint="cdc=CDC(…) applies deletes that messages tell of",
            keyword="target",
        )
    connection = said.connection if said.connection is not None else options.target_connection
    connection = connection if connection is not None else DEFAULT_CONNECTION
    check_connection(connection, keyword="target")
    lists: dict[str, Any] = {
        name: _names(getattr(said, name), name) for name in _LISTS if getattr(said, name) is not None
    }
    for name in ("topic", "queue", "partition_key_prefix", "prefix", "message_key_column", "event_timestamp_column"):
        value = getattr(said, name)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise DeclarationError(f"the {name} of a target is a text, not {value!r}", keyword=f"target_{name}")
    if said.column_map is not None and not isinstance(said.column_map, Mapping):
        raise DeclarationError("column_map maps columns of the table to those of the rows", keyword="column_map")
    return replace(said, connection=connection, table=_table_name(said.table), **lists)


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


def _names(given: Any, keyword: str) -> tuple[str, ...]:
    names = several(given)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise DeclarationError(f"{keyword} is a list of column names, not {given!r}", keyword=keyword)
    return names


def _given_places(said: Target) -> tuple[str, ...]:
    return tuple(name for name in PLACES if getattr(said, name) is not None)


def _is_broker(said: Target) -> bool:
    given = _given_places(said)
    check_place(kind_of(said.connection), given, declared=isinstance(said.table, type))
    return not given or given[0] in BROKER_PLACES


def _broker(said: Target, options: StreamOptions) -> BrokerTarget:
    given = _given_places(said)
    place = str(getattr(said, given[0])) if given else ""
    for name in ("mode", "event_timestamp_column", "column_map", *_LISTS, *_WRITING, *_READING):
        if getattr(said, name) is not None:
            raise DeclarationError(f"{name} is for tables and files, and a broker takes messages", keyword="target")
    payload = getattr(said.connection, "payload_format", None) or options.payload or "json"
    name = place or (said.connection if isinstance(said.connection, str) else said.connection.name)
    return BrokerTarget(str(name), said.connection, place, said.message_key_column, payload)


def _table(said: Target, options: StreamOptions, where: Location | None) -> TableTarget:
    _check_options(said)
    load = _load(said, options, where) if isinstance(said.table, type) else None
    schema, table = _place_of(said, load)
    prefix = str(said.prefix).strip("/") if said.prefix is not None else ""
    options_of = said.write_options
    if load is None:
        options_of |= _loading(said, options)
    return TableTarget(
        name=prefix or (f"{schema}.{table}" if schema else table),
        connection=said.connection,
        load=load,
        schema=schema,
        table=table,
        primary_key=load.table.primary_key if load else tuple(said.primary_key or ()),
        mode=load.strategy.mode if load else _mode(said, options),
        options=options_of,
    )


def _place_of(said: Target, load: LoadSpec | None) -> tuple[str, str]:
    if load is not None:
        return load.table.schema, load.table.name
    if said.prefix is None:
        pair: Any = said.table  # normalized by `_completed`
        return pair[0], pair[1]
    parts = str(said.prefix).strip("/").split("/")
    if not all(part.strip() and part not in (".", "..") for part in parts):
        raise DeclarationError(
            f"{said.prefix!r} is no prefix of a folder", hint='for example "events/raw"', keyword="target_prefix"
        )
    return "/".join(parts[:-1]), parts[-1]


def _mode(said: Target, options: StreamOptions) -> str:
    mode = said.mode or options.mode or ("merge" if options.cdc is not None else "append")
    if mode not in MODES:
        raise UnknownMode(f"mode={mode!r} is not known", hint=did_you_mean(str(mode), MODES), keyword="mode")
    if mode == "truncate":
        raise DeclarationError(
            "a stream does not truncate: every batch would throw away the one before",
            hint='use mode="append", "merge" or "scd2"',
            keyword="mode",
        )
    return "merge" if mode == "scd1" else mode


def _load(said: Target, options: StreamOptions, where: Location | None) -> LoadSpec:
    """Return the load that a batch pipeline would declare."""
    if said.primary_key is not None:
        raise DeclarationError(
            "primary_key is for tables that are not declared; this one has its pk()", keyword="target_primary_key"
        )
    wishes = PipelineOptions(
        mode=_mode(said, options),
        keys=_optional_names(options.keys, "keys") or None,
        update_columns=_optional_names(options.update_columns, "update_columns") or None,
        compare_columns=_optional_names(options.compare_columns, "compare_columns") or None,
        event_timestamp_column=options.event_timestamp_column,
        column_map=options.column_map,
    )
    return load_for(replace(said, mode=None), wishes, where)


def _loading(said: Target, options: StreamOptions) -> dict[str, Any]:
    """Return the load options of an undeclared table: its keys and columns."""
    mode = _mode(said, options)
    found: dict[str, Any] = {}
    for name in _LOADING:
        value = getattr(said, name) or _optional_names(getattr(options, name), name)
        if value:
            found[name] = value
    event = said.event_timestamp_column or options.event_timestamp_column
    if event is not None:
        if mode != "scd2":
            raise DeclarationError(
                f"event_timestamp_column goes with mode='scd2', not with {mode!r}", keyword="event_timestamp_column"
            )
        found["event_timestamp_column"] = event
    if said.column_map is not None or options.column_map is not None:
        raise DeclarationError(
            "column_map is for declared tables", hint="rename columns with transform_sql=", keyword="column_map"
        )
    if mode != "append" and options.cdc is None and not (found.get("keys") or said.primary_key):
        raise DeclarationError(
            f"mode={mode!r} needs keys", hint='add keys=("id",), or declare the table as a class', keyword="keys"
        )
    return found


def _optional_names(given: Any, keyword: str) -> tuple[str, ...]:
    return () if given is None else _names(given, keyword)


def _check_options(said: Target) -> None:
    kind = kind_of(said.connection)
    if said.message_key_column is not None:
        raise DeclarationError("message_key_column is for brokers, and this target is a table", keyword="target")
    for name in (*_WRITING, *_READING):
        if getattr(said, name) is not None and kind in (*DATABASES, *DELTA):
            raise DeclarationError(f"{name} is for files, and this target is {kind}", keyword="target")
    if said.partition_by is not None and kind in DATABASES:
        raise DeclarationError(f"partition_by is for files and Delta tables, not for {kind}", keyword="target")
    if kind in FILES and said.primary_key is not None:
        raise DeclarationError("primary_key is for tables, and this target is a folder", keyword="target_primary_key")


def _free_name(made: StreamTarget, others: Sequence[StreamTarget]) -> str:
    """Return the target's name, prefixed by the connection's name if an earlier target has the same."""
    taken = {other.name for other in others}
    if made.name not in taken:
        return made.name
    connection = made.connection if isinstance(made.connection, str) else made.connection.name
    longer = f"{connection}:{made.name}"
    same = any(_place(other) == _place(made) and other.connection == made.connection for other in others)
    if same or longer in taken:
        raise DeclarationError(f"two targets write to {made.name} of {connection}", keyword="targets")
    return longer


def _place(target: StreamTarget) -> tuple[str, str]:
    return ("", target.place) if isinstance(target, BrokerTarget) else (target.schema, target.table)
