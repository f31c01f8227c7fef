"""Streams declared in TOML: the text is converted to the keywords of Python, with the line of each."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path as FilePath
from typing import Any, NoReturn

from ematix_flow.config import files
from ematix_flow.config.object_references import import_object
from ematix_flow.config.toml_lines import Path
from ematix_flow.declare.connections import Connection, from_fields
from ematix_flow.declare.connections.kinds import KINDS
from ematix_flow.declare.endpoints import Source, Target
from ematix_flow.declare.streams.options import ALIASES, StreamOptions, stream_from
from ematix_flow.declare.streams.parts import CDC, Aggregation, Join, Lookup, StateStore, StreamPart, Watermark, Window
from ematix_flow.declare.streams.placement import DELTA
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.foundation.errors import ConfigError, FlowError
from ematix_flow.foundation.names import did_you_mean

TOP = {
    **ALIASES,
    **{
        name: name
        for name in (
            "name", "source_query", "idle_pause_ms", "delivery", "engine", "peers", "on_drift", "start", "payload",
            "max_rows_per_batch", "trigger", "checkpoint", "continue_on_target_failure", "metrics_port",
            "mode", "keys", "update_columns", "compare_columns", "event_timestamp_column", "column_map", "fields",
            "transform_on_error", "dead_letter_topic", "dlq_store", "dlq_max_attempts", "max_bad_fraction",
            "restart_on_error", "initial_backoff_ms", "max_backoff_ms", "max_restarts",
        )
    },
}  # fmt: skip
TRANSFORM = {"sql": "transform_sql", "dialect": "dialect", "on_error": "transform_on_error", "engine": "engine",
             "peers": "peers"}  # fmt: skip
DLQ = {"store": "dlq_store", "topic": "dead_letter_topic", "max_attempts": "dlq_max_attempts",
       "max_bad_fraction": "max_bad_fraction"}  # fmt: skip
RESTART = {"on_error": "restart_on_error", "initial_backoff_ms": "initial_backoff_ms",
           "max_backoff_ms": "max_backoff_ms", "max_restarts": "max_restarts"}  # fmt: skip
PARTS = {"state_store": StateStore, "watermark": Watermark}
TRANSFORM_PARTS = {"window": Window, "join": Join, "cdc": CDC}
FUNCTIONS = ("udfs", "aggregate_udfs")
READ_OPTIONS = ("csv_read_options", "json_read_options")
SOURCE = ("query", "dead_letter_topic", "read_options", *READ_OPTIONS)
SOURCES = ("query", "read_options", *READ_OPTIONS)
TARGET = tuple(field.name for field in dataclasses.fields(Target) if field.name not in ("connection", "handle_deletes"))
LOOKUP = ("table", "schema", "query", "refresh_interval_ms")
TABLE = ("schema", "name", "primary_key", "class")
NAMES = {"as_": "as"}
"""Field names of Python that differ from their TOML key."""
_ABOUT_CONNECTIONS = ("connection", "kind", "url", "dsn", "name")


def stream_from_file(path: str | os.PathLike[str], *, name: str | None = None) -> StreamSpec:
    """Return the stream that a file declares; `name` applies if the file declares none."""
    shown = os.fspath(path)
    document = files.read(FilePath(shown), shown=shown)
    if document is None:
        raise ConfigError(f"there is no file {shown}", hint="name a TOML file, or a declared stream with --module")
    return StreamReader(document).stream(name)


def stream_from_text(text: str, *, name: str | None = None) -> StreamSpec:
    """Return the stream that a text declares; `name` applies if the text declares none."""
    shown = "the configuration text"
    path = FilePath("<config_str>")
    return StreamReader(files.ConfigFile(path, shown, text, files.parse(text, path=path, shown=shown))).stream(name)


class StreamReader:
    """A reader of one TOML document."""

    def __init__(self, file: files.ConfigFile) -> None:
        self._file = file
        self._options: dict[str, Any] = {}
        self._paths: dict[str, Path] = {}

    def stream(self, name: str | None = None) -> StreamSpec:
        """Return the stream; every error has its line as location."""
        self._read()
        if name is not None:
            self._options.setdefault("name", name)
        where = self._file.place(self._paths.get("name", ()))
        try:
            return stream_from(StreamOptions.parse(self._options, where, door=self._file.shown), where)
        except FlowError as error:
            path = self._path_of(str(error.facts.get("keyword", "")), error.facts.get("number"))
            error.where = self._file.place(path) if path else where
            raise

    def _path_of(self, keyword: str, number: object) -> Path:
        """Return the path in the file that sets a keyword."""
        several = next(
            (key for key in ("targets", "sources") if keyword.startswith(key[:-1]) and key in self._paths), None
        )
        if several is not None and isinstance(number, int):
            return (several, number, keyword.partition("_")[2])
        if keyword in self._paths:
            return self._paths[keyword]
        block, _, key = keyword.partition("_")
        return (block, key) if block in self._paths else ()

    def _read(self) -> None:
        data = self._file.data
        tables = ("source", "sources", "target", "targets", "transform", "dlq", "restart", *PARTS)
        self._only(data, (*TOP, *tables), ())
        for key, keyword in TOP.items():
            if key in data:
                self._put(keyword, data[key], (key,))
        self._sources(data)
        self._targets(data)
        self._transform(self._table(data, ("transform",)))
        for block, keywords in (("dlq", DLQ), ("restart", RESTART)):
            table = self._table(data, (block,))
            self._only(table, keywords, (block,))
            for key in table:
                self._put(keywords[key], table[key], (block, key))
        for key, part in PARTS.items():
            if key in data:
                self._put(key, self._part(part, self._table(data, (key,)), (key,)), (key,))

    # Sources and targets ---------------------------------------------------------------------------------------------

    def _sources(self, data: Mapping[str, Any]) -> None:
        if "source" in data:
            self._single_source(self._table(data, ("source",)), ("source",))
        if "sources" in data:
            entries = self._entries(data, "sources")
            sources = []
            for number, table in enumerate(entries):
                path: Path = ("sources", number)
                connection = self._connection(table, SOURCES, path, default=f"source_{number + 1}")
                sources.append(self._source(connection, table, table.get("query"), path))
            self._put("sources", sources, ("sources",))

    def _single_source(self, table: Mapping[str, Any], path: Path) -> None:
        for key, keyword in (("query", "source_query"), ("dead_letter_topic", "dead_letter_topic")):
            if key in table:
                self._put(keyword, table[key], (*path, key))
        source: Any = self._connection(table, SOURCE, path, default="source")
        if any(key in table for key in ("read_options", *READ_OPTIONS)):
            source = self._source(source, table, self._options.pop("source_query", None), path)
        self._put("source", source, path)

    def _source(self, connection: Any, table: Mapping[str, Any], query: Any, path: Path) -> Source:
        if query is None:
            self._wrong(path, "a source does not say its query", hint='add query = "events"')
        with self._placed(path):
            return Source(connection, query, **self._read_options(table, path))

    def _targets(self, data: Mapping[str, Any]) -> None:
        if "target" in data:
            self._put("target", self._target(self._table(data, ("target",)), ("target",), "target"), ("target",))
        if "targets" in data:
            entries = self._entries(data, "targets")
            targets = [self._target(one, ("targets", at), f"target_{at + 1}") for at, one in enumerate(entries)]
            self._put("targets", targets, ("targets",))

    def _target(self, table: Mapping[str, Any], path: Path, default: str) -> Target:
        own = (*(name for name in TARGET if name != "prefix" or table.get("kind") not in DELTA), "read_options")
        connection = self._connection(table, own, path, default=default)
        options = {key: item for key, item in table.items() if key in own and key != "read_options"}
        options |= self._read_options(table, path)
        if "table" in options:
            options |= self._table_of(options["table"], (*path, "table"))
        with self._placed(path):
            return Target(connection=connection, **options)

    def _read_options(self, table: Mapping[str, Any], path: Path) -> dict[str, Any]:
        """Return `csv_read_options` or `read_options.csv` (the same for json); a character may be given as its code."""
        tables = {name: (table[name], (*path, name)) for name in READ_OPTIONS if name in table}
        inner: Path = (*path, "read_options")
        nested = self._mapping(table.get("read_options", {}), inner)
        self._only(nested, ("csv", "json"), inner)
        for kind, value in nested.items():
            name = f"{kind}_read_options"
            if name in tables:
                self._wrong((*inner, kind), f"read_options.{kind} says again what {name} says", hint="keep one of them")
            tables[name] = (value, (*inner, kind))
        return {name: _with_characters(self._mapping(value, place)) for name, (value, place) in tables.items()}

    def _table_of(self, value: Any, path: Path) -> dict[str, Any]:
        if isinstance(value, str):
            return {"table": value}
        one = value[0] if isinstance(value, list) and len(value) == 1 else value
        table = self._mapping(one, path)
        self._only(table, TABLE, path)
        key = {"primary_key": table["primary_key"]} if "primary_key" in table else {}
        if "class" in table:
            if "name" in table or "schema" in table:
                self._wrong(path, "class names the table already", hint="leave out schema and name")
            return {"table": self._imported(table["class"], (*path, "class")), **key}
        if "name" not in table:
            self._wrong(path, "the table has no name", hint='add name = "events"')
        return {"table": (table.get("schema", ""), table["name"]), **key}

    # Transform -------------------------------------------------------------------------------------------------------

    def _transform(self, table: Mapping[str, Any]) -> None:
        if "tls" in table:
            self._wrong(("transform", "tls"), "a stream does not say how to get into a cluster",
                        hint="set it under [spark] in .ematix-flow.toml")  # fmt: skip
        self._only(table, (*TRANSFORM, *TRANSFORM_PARTS, *FUNCTIONS, "lookups"), ("transform",))
        for key, keyword in TRANSFORM.items():
            if key in table:
                self._put(keyword, table[key], ("transform", key))
        for key, part in TRANSFORM_PARTS.items():
            if key in table:
                path: Path = ("transform", key)
                self._put(key, self._part(part, self._mapping(table[key], path), path), path)
        for key in FUNCTIONS:
            if key in table:
                path = ("transform", key)
                if not isinstance(table[key], list):
                    self._wrong(path, f"{key} is a list", hint=f'write {key} = ["my_functions:vwap"]')
                self._put(key, [self._imported(item, path) for item in table[key]], path)
        if "lookups" in table:
            path = ("transform", "lookups")
            named = self._mapping(table["lookups"], path)
            self._put("lookups", {name: self._lookup(name, one, (*path, name)) for name, one in named.items()}, path)
        self._name_join_sources()

    def _lookup(self, name: str, value: Any, path: Path) -> Lookup:
        table = self._mapping(value, path)
        connection = self._connection(table, LOOKUP, path, default=name)
        with self._placed(path):
            return Lookup(connection, **{key: item for key, item in table.items() if key in LOOKUP})

    def _part(self, kind: type[StreamPart], table: Mapping[str, Any], path: Path) -> StreamPart:
        """Return the Python value of a table with the same names."""
        known = {NAMES.get(field.name, field.name): field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
        self._only(table, known, path)
        options = {known[key]: item for key, item in table.items()}
        if kind is Window:
            entries = options.get("aggregations", [])
            if not isinstance(entries, list):
                self._wrong((*path, "aggregations"), "aggregations is not a list of tables",
                            hint="write [[transform.window.aggregations]]")  # fmt: skip
            options["aggregations"] = [
                self._part(Aggregation, self._mapping(one, (*path, "aggregations", at)), (*path, "aggregations", at))
                for at, one in enumerate(entries)
            ]
        missing = [NAMES.get(one.name, one.name) for one in dataclasses.fields(kind)  # type: ignore[arg-type]
                   if one.default is dataclasses.MISSING and one.name not in options]  # fmt: skip
        if missing:
            self._wrong(path, f"[{'.'.join(map(str, path))}] does not say {missing[0]}", hint=f"add {missing[0]} = …")
        with self._placed(path):
            return kind(**options)

    def _name_join_sources(self) -> None:
        """Replace source names in a join by their queries: a join may also refer to its sources by name."""
        join, entries = self._options.get("join"), self._file.data.get("sources")
        if join is None or not isinstance(entries, list):
            return
        queries = {one.get("name"): one.get("query") for one in entries if isinstance(one, Mapping)}
        known = set(queries.values())
        sides = {side: getattr(join, side) for side in ("left_source", "right_source")}
        renamed = {side: queries[named] for side, named in sides.items() if named not in known and named in queries}
        with self._placed(("transform", "join")):
            self._options["join"] = dataclasses.replace(join, **renamed)

    # Connections -----------------------------------------------------------------------------------------------------

    def _connection(
        self, table: Mapping[str, Any], own: Sequence[str], path: Path, *, default: str
    ) -> Connection | str:
        """Return the connection: `connection = "name"`, or its fields beside the other keys or in a separate table."""
        rest = {key: item for key, item in table.items() if key not in own}
        value = rest.get("connection")
        if isinstance(value, Mapping):
            self._only(rest, ("connection",), path, also=own)
            return self._inline(value, (*path, "connection"), default)
        if value is not None:
            if not isinstance(value, str) or not value:
                self._wrong(
                    (*path, "connection"), "connection is the name of one", hint='write connection = "warehouse"'
                )
            self._only(rest, ("connection", "name") if path[0] == "sources" else ("connection",), path, also=own)
            return value
        kind = KINDS.get(str(rest.get("kind")))
        if kind is not None:
            self._only(rest, (*_ABOUT_CONNECTIONS, *kind.field_names()), path, also=own)
        elif not {"kind", "url", "dsn"} & rest.keys():
            self._only(rest, _ABOUT_CONNECTIONS, path, also=own)
            self._wrong(path, f"[{path[0]}] does not say its connection",
                        hint='write connection = "warehouse", or kind = "…" with its fields')  # fmt: skip
        return self._inline(rest, path, default)

    def _inline(self, fields: Mapping[str, Any], path: Path, default: str) -> Connection:
        entry = dict(fields)
        for field, item in fields.items():
            if isinstance(item, Mapping):
                entry[field] = self._inline(item, (*path, field), f"{default}_{field}")
        try:
            return from_fields(str(fields.get("name") or default), entry, where=self._file.place(path))
        except ConfigError as error:
            wrong = str(error.facts.get("field"))
            error.where = self._file.place((*path, wrong) if wrong in entry else path)
            raise

    # Errors ----------------------------------------------------------------------------------------------------------

    def _put(self, keyword: str, value: Any, path: Path) -> None:
        if keyword in self._options:
            before = ".".join(map(str, self._paths[keyword]))
            self._wrong(path, f"{'.'.join(map(str, path))} says again what {before} says", hint="keep one of them")
        self._options[keyword] = value
        self._paths[keyword] = path

    def _only(self, table: Mapping[str, Any], known: Sequence[str] | Mapping[str, Any], path: Path, *,
              also: Sequence[str] = ()) -> None:  # fmt: skip
        for key in table:
            if key not in known:
                inside = f"[{'.'.join(str(part) for part in path if isinstance(part, str))}]" if path else "the file"
                self._wrong((*path, key), f"{inside} has no key {key!r}", hint=did_you_mean(key, {*known, *also}))

    def _table(self, data: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
        return self._mapping(data.get(str(path[0]), {}), path)

    def _mapping(self, value: Any, path: Path) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            shown = ".".join(map(str, path))
            self._wrong(path, f"{shown} is not a table", hint=f"write [{shown}] and its keys below")
        return value

    def _entries(self, data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
        entries = data[key]
        if not isinstance(entries, list):
            self._wrong((key,), f"{key} is not a list of tables", hint=f"write [[{key}]], once for each")
        return [self._mapping(one, (key, number)) for number, one in enumerate(entries)]

    def _imported(self, reference: Any, path: Path) -> Any:
        with self._placed(path):
            return import_object(reference)

    @contextmanager
    def _placed(self, path: Path) -> Iterator[None]:
        """Set the location of an error of the block to the line of the field that it is about."""
        try:
            yield
        except FlowError as error:
            field = str(error.facts.get("field", ""))
            error.where = self._file.place((*path, NAMES.get(field, field)) if field else path)
            raise

    def _wrong(self, path: Path, what: str, *, hint: str) -> NoReturn:
        raise ConfigError(f"{self._file.shown}: {what}", where=self._file.place(path), hint=hint)


def _with_characters(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with character codes replaced by characters, in the options that take one."""
    codes = {
        key: chr(item)
        for key, item in options.items()
        if key in ("delimiter", "quote", "escape", "comment") and type(item) is int and 0 <= item < 128
    }
    return {**options, **codes}
