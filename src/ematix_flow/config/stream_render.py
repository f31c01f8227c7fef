"""A declared stream rendered as TOML that declares the same stream; `${…}` stays, and secrets are left out."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from typing import Any

from ematix_flow.config import stream_toml, toml_writer
from ematix_flow.config.object_references import object_reference
from ematix_flow.declare.connections import Connection
from ematix_flow.declare.endpoints import Source, Target
from ematix_flow.declare.pipeline import as_tuple
from ematix_flow.declare.streams.options import StreamOptions, declared_sources
from ematix_flow.declare.streams.parts import Lookup, StreamPart
from ematix_flow.declare.streams.placement import FILES
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.declare.streams.targets import declared_targets
from ematix_flow.foundation import redact

_PLAIN = (
    "idle_pause_ms", "delivery", "engine", "peers", "on_drift", "payload", "max_rows_per_batch", "trigger", "checkpoint",
    "continue_on_target_failure", "metrics_port", "mode", "keys", "update_columns", "compare_columns",
    "event_timestamp_column", "column_map", "fields",
)  # fmt: skip


def render(spec: StreamSpec) -> str:
    """Return the stream as TOML."""
    options = StreamOptions.parse(spec.captured, spec.where)
    declared_options = options.set_options()
    secrets = _ConnectionWriter()
    sources = declared_sources(options)
    data: dict[str, Any] = {"pipeline_name": spec.name}
    if len(sources) == 1:
        data["source_query"] = sources[0].query
    data |= {key: _plain_value(declared_options[key]) for key in _PLAIN if key in declared_options}
    if "start" in declared_options:
        data["start"] = spec.start
    if len(sources) == 1:
        data["source"] = {**secrets.connection(sources[0].connection, stream_toml.SOURCE), **_read_options(sources[0])}
    else:
        data["sources"] = [_source(source, secrets) for source in sources]
    targets = [_target(target, secrets) for target in declared_targets(options)]
    data |= {"target": targets[0]} if len(targets) == 1 else {"targets": targets}
    data["transform"] = _transform(declared_options, secrets)
    for block, keywords in (("dlq", stream_toml.DLQ), ("restart", stream_toml.RESTART)):
        data[block] = {key: declared_options[name] for key, name in keywords.items() if name in declared_options}
    for key in stream_toml.PARTS:
        if key in declared_options:
            data[key] = secrets.part(declared_options[key], key)
    filled = {key: item for key, item in data.items() if item not in ({}, ()) or key in stream_toml.PARTS}
    return secrets.notes() + toml_writer.toml_document(filled)


def _source(source: Source, secrets: _ConnectionWriter) -> dict[str, Any]:
    connection = secrets.connection(source.connection, stream_toml.SOURCES)
    return {"query": source.query, **connection, **_read_options(source)}


def _read_options(source: Source) -> dict[str, Any]:
    declared = {name: getattr(source, name) for name in stream_toml.READ_OPTIONS}
    return {name: dict(options) for name, options in declared.items() if options is not None}


def _target(target: Target, secrets: _ConnectionWriter) -> dict[str, Any]:
    table = secrets.connection(target.connection, stream_toml.TARGET)
    for name in stream_toml.TARGET:
        value = getattr(target, name)
        if value is not None and name not in ("table", "primary_key"):
            table[name] = _plain_value(value)
    key = {"primary_key": list(target.primary_key)} if target.primary_key is not None else {}
    if isinstance(target.table, type):
        table["table"] = {"class": object_reference(target.table, what=f"the table {target.table.__name__}"), **key}
    elif target.table is not None:
        schema, name = target.table
        table["table"] = {**({"schema": schema} if schema else {}), "name": name, **key}
    return table


def _transform(options: Mapping[str, Any], secrets: _ConnectionWriter) -> dict[str, Any]:
    table = {key: options[keyword] for key, keyword in stream_toml.TRANSFORM.items()
            if keyword in options and key not in ("engine", "peers")}  # fmt: skip
    for key in stream_toml.FUNCTIONS:
        if options.get(key):
            table[key] = [object_reference(item, what=f"the function {item.name}") for item in as_tuple(options[key])]
    for key in stream_toml.TRANSFORM_PARTS:
        if key in options:
            table[key] = secrets.part(options[key], key)
    if options.get("lookups"):
        table["lookups"] = {name: _lookup(lookup, secrets) for name, lookup in options["lookups"].items()}
    return table


def _lookup(lookup: Lookup, secrets: _ConnectionWriter) -> dict[str, Any]:
    own = {key: getattr(lookup, key) for key in stream_toml.LOOKUP if getattr(lookup, key) not in (None, "")}
    return {**secrets.connection(lookup.connection, stream_toml.LOOKUP), **own}


def _plain_value(value: Any) -> Any:
    """Return a value for TOML: sequences as lists, sets as sorted lists, paths as texts."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    return list(as_tuple(value)) if isinstance(value, (list, tuple, set, frozenset)) else value


class _ConnectionWriter:
    """A writer of connections that replaces each literal secret by a variable."""

    def __init__(self) -> None:
        self._variables: list[str] = []

    def notes(self) -> str:
        """Return a comment with the variables to set before the text is used."""
        if not self._variables:
            return ""
        names = ", ".join(dict.fromkeys(self._variables))
        return f"# secrets stay out of this text; set before use: {names}\n\n"

    def connection(self, connection: Any, own: tuple[str, ...]) -> dict[str, Any]:
        """Return the keys of a connection, in a separate table if one of them has another meaning beside it."""
        if isinstance(connection, str):
            return {"connection": connection}
        table = self._fields(connection)
        taken = set(own) - ({"prefix"} if connection.kind not in FILES else set())
        return {"connection": table} if taken & table.keys() else table

    def part(self, part: StreamPart, name: str) -> dict[str, Any]:
        """Return the fields of a part that differ from their defaults."""
        table: dict[str, Any] = {}
        for field in dataclasses.fields(part):  # type: ignore[arg-type]
            value = getattr(part, field.name)
            if value == field.default or value is None or value == ():
                continue
            if field.name == "aggregations":
                value = [self.part(item, name) for item in value]
            is_url = field.name == "url"
            table[stream_toml.NAMES.get(field.name, field.name)] = (
                self._safe(value, name, "url") if is_url else _plain_value(value)
            )
        return table

    def _fields(self, connection: Connection) -> dict[str, Any]:
        table: dict[str, Any] = {"kind": connection.kind, "name": connection.name}
        for field, value in connection.fields.items():
            if isinstance(value, Connection):
                table[field] = self._fields(value)
            elif field in connection.rules.paths:
                table[field] = value
            else:
                table[field] = self._safe(value, connection.name, field)
        return table

    def _safe(self, value: Any, owner: str, field: str) -> Any:
        if not isinstance(value, str):
            return _plain_value(value)
        if redact.is_secret_name(field):
            return value if _is_reference(value) else self._variable(owner, field)
        shown = redact.redact(field, value)
        if shown == value:
            return value
        first, *rest = shown.split(redact.MASK)
        names = [f"{field}_password", *(f"{field}_password_{number}" for number in range(2, len(rest) + 1))]
        return first + "".join(self._variable(owner, name) + part for name, part in zip(names, rest, strict=True))

    def _variable(self, owner: str, field: str) -> str:
        name = re.sub(r"\W", "_", f"{owner}_{field}").upper()
        name = name if not name[0].isdigit() else f"_{name}"
        self._variables.append(name)
        return f"${{{name}}}"


def _is_reference(value: str) -> bool:
    """Return whether the value consists of references only."""
    return bool(re.fullmatch(r"(\$\{[^{}]*\})+", value))
