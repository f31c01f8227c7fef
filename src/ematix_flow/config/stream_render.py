"""A declared stream rendered as TOML that declares the same stream; `${…}` stays, and secrets are left out."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from typing import Any

from ematix_flow.config import stream_toml, toml_text
from ematix_flow.config.imported import reference_to
from ematix_flow.declare.connections import Connection
from ematix_flow.declare.endpoints import Source, Target
from ematix_flow.declare.pipeline import several
from ematix_flow.declare.streams.options import StreamOptions, said_sources
from ematix_flow.declare.streams.parts import Lookup, Part
from ematix_flow.declare.streams.placement import FILES
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.declare.streams.targets import said_targets
from ematix_flow.foundation import redact

_PLAIN = (
    "idle_pause_ms", "delivery", "engine", "peers", "on_drift", "payload", "max_rows_per_batch", "trigger", "checkpoint",
    "continue_on_target_failure", "metrics_port", "mode", "keys", "update_columns", "compare_columns",
    "event_timestamp_column", "column_map", "fields",
)  # fmt: skip


def render(spec: StreamSpec) -> str:
    """Return the stream as TOML."""
    options = StreamOptions.parse(spec.captured, spec.where)
    said = options.given()
    secrets = _Secrets()
    sources = said_sources(options)
    data: dict[str, Any] = {"pipeline_name": spec.name}
    if len(sources) == 1:
        data["source_query"] = sources[0].query
    data |= {key: _plain(said[key]) for key in _PLAIN if key in said}
    if "start" in said:
        data["start"] = spec.start
    if len(sources) == 1:
        data["source"] = {**secrets.connection(sources[0].connection, stream_toml.SOURCE), **_read_options(sources[0])}
    else:
        data["sources"] = [_source(source, secrets) for source in sources]
    targets = [_target(target, secrets) for target in said_targets(options)]
    data |= {"target": targets[0]} if len(targets) == 1 else {"targets": targets}
    data["transform"] = _transform(said, secrets)
    data["dlq"] = {key: said[keyword] for key, keyword in stream_toml.DLQ.items() if keyword in said}
    data["restart"] = {key: said[keyword] for key, keyword in stream_toml.RESTART.items() if keyword in said}
    for key in stream_toml.PARTS:
        if key in said:
            data[key] = secrets.part(said[key], key)
    filled = {key: item for key, item in data.items() if item not in ({}, ()) or key in stream_toml.PARTS}
    return secrets.notes() + toml_text.document(filled)


def _source(source: Source, secrets: _Secrets) -> dict[str, Any]:
    connection = secrets.connection(source.connection, stream_toml.SOURCES)
    return {"query": source.query, **connection, **_read_options(source)}


def _read_options(source: Source) -> dict[str, Any]:
    said = {name: getattr(source, name) for name in stream_toml.READ_OPTIONS}
    return {name: dict(options) for name, options in said.items() if options is not None}


def _target(target: Target, secrets: _Secrets) -> dict[str, Any]:
    made = secrets.connection(target.connection, stream_toml.TARGET)
    for name in stream_toml.TARGET:
        value = getattr(target, name)
        if value is not None and name not in ("table", "primary_key"):
            made[name] = _plain(value)
    key = {"primary_key": list(target.primary_key)} if target.primary_key is not None else {}
    if isinstance(target.table, type):
        made["table"] = {"class": reference_to(target.table, what=f"the table {target.table.__name__}"), **key}
    elif target.table is not None:
        schema, name = target.table
        made["table"] = {**({"schema": schema} if schema else {}), "name": name, **key}
    return made


def _transform(said: Mapping[str, Any], secrets: _Secrets) -> dict[str, Any]:
    made = {key: said[keyword] for key, keyword in stream_toml.TRANSFORM.items()
            if keyword in said and key not in ("engine", "peers")}  # fmt: skip
    for key in stream_toml.FUNCTIONS:
        if said.get(key):
            made[key] = [reference_to(item, what=f"the function {item.name}") for item in several(said[key])]
    for key in stream_toml.TRANSFORM_PARTS:
        if key in said:
            made[key] = secrets.part(said[key], key)
    if said.get("lookups"):
        made["lookups"] = {name: _lookup(lookup, secrets) for name, lookup in said["lookups"].items()}
    return made


def _lookup(lookup: Lookup, secrets: _Secrets) -> dict[str, Any]:
    own = {key: getattr(lookup, key) for key in stream_toml.LOOKUP if getattr(lookup, key) not in (None, "")}
    return {**secrets.connection(lookup.connection, stream_toml.LOOKUP), **own}


def _plain(value: Any) -> Any:
    """Return a value for TOML: sequences as lists, sets as sorted lists, paths as texts."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    return list(several(value)) if isinstance(value, (list, tuple, set, frozenset)) else value


class _Secrets:
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
        made = self._fields(connection)
        taken = set(own) - ({"prefix"} if connection.kind not in FILES else set())
        return {"connection": made} if taken & made.keys() else made

    def part(self, part: Part, name: str) -> dict[str, Any]:
        """Return the fields of a part that differ from their defaults."""
        made: dict[str, Any] = {}
        for field in dataclasses.fields(part):  # type: ignore[arg-type]
            value = getattr(part, field.name)
            if value == field.default or value is None or value == ():
                continue
            if field.name == "aggregations":
                value = [self.part(item, name) for item in value]
            is_url = field.name == "url"
            made[stream_toml.NAMES.get(field.name, field.name)] = (
                self._safe(value, name, "url") if is_url else _plain(value)
            )
        return made

    def _fields(self, connection: Connection) -> dict[str, Any]:
        made: dict[str, Any] = {"kind": connection.kind, "name": connection.name}
        for field, value in connection.fields.items():
            if isinstance(value, Connection):
                made[field] = self._fields(value)
            elif field in connection.rules.paths:
                made[field] = value
            else:
                made[field] = self._safe(value, connection.name, field)
        return made

    def _safe(self, value: Any, owner: str, field: str) -> Any:
        if not isinstance(value, str):
            return _plain(value)
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
