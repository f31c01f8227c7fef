"""Avro schemas as JSON: with inlined references, framed, with their defaults, and generated from Spark's types."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ematix_flow.foundation.errors import PlanError
from ematix_flow.foundation.lazy_imports import t
from ematix_flow.messages.registries.registry import RegisteredSchema
from ematix_flow.messages.type_widening import ITEM, MOST_LEVELS, VALUE, Path

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

ROW, END = "row", "end"
FRAME_END = bytes.fromhex("e7a1f05bd2c84396")
"""A marker appended to every payload: it is read back intact only when the payload is as long as its schema says."""
_NAMED = ("record", "error", "enum", "fixed")
_PRIMITIVE = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Definitions = dict[str, Any]


def complete_schema(schema: RegisteredSchema) -> tuple[Any, Definitions]:
    """Return the schema with its references inlined, and every named type by its full name."""
    known: Definitions = {}
    _collect_references(schema, known)
    parsed = json.loads(schema.text)
    _collect(parsed, "", known)
    return _inline_definitions(parsed, "", known, set()), known


def framed_schema(parsed: Any) -> str:
    """Return a record schema of the payload and the end marker, by which bytes of another schema are detected."""
    end = {"type": "fixed", "name": "ematix_flow_end", "size": len(FRAME_END)}
    fields = [{"name": ROW, "type": parsed}, {"name": END, "type": end}]
    return json.dumps({"type": "record", "name": "ematix_flow_frame", "fields": fields})


def defaults(parsed: Any, known: Definitions) -> Iterator[tuple[Path, str]]:
    """Yield the path of every field with a default, and a schema of a record with just this field."""
    yield from _defaults(parsed, "", known, ())


def _collect_references(schema: RegisteredSchema, known: Definitions) -> None:
    for reference in schema.references:
        _collect_references(reference.schema, known)
        _collect(json.loads(reference.schema.text), "", known)


def _collect(schema: Any, namespace: str, known: Definitions) -> None:
    if isinstance(schema, list):
        for branch in schema:
            _collect(branch, namespace, known)
    elif isinstance(schema, dict):
        if schema.get("type") in _NAMED:
            name, namespace = _full_name(schema, namespace)
            known[name] = {**schema, "name": name.rpartition(".")[2], "namespace": namespace}
        for inner in _inner(schema):
            _collect(inner, namespace, known)


def _inner(schema: dict[str, Any]) -> list[Any]:
    parts = [schema[key] for key in ("items", "values") if key in schema]
    parts += [field["type"] for field in schema.get("fields") or ()]
    return parts + ([schema["type"]] if isinstance(schema.get("type"), (dict, list)) else [])


def _full_name(schema: dict[str, Any], namespace: str) -> tuple[str, str]:
    name = str(schema["name"])
    space, dot, _ = name.rpartition(".")
    if dot:
        return name, space
    space = str(schema.get("namespace", namespace) or "")
    return (f"{space}.{name}" if space else name), space


def _inline_definitions(schema: Any, namespace: str, known: Definitions, placed: set[str]) -> Any:
    """Return the schema with each type that is defined elsewhere defined at its first use."""
    if isinstance(schema, list):
        return [_inline_definitions(branch, namespace, known, placed) for branch in schema]
    if isinstance(schema, str):
        return schema if schema in _PRIMITIVE else _used(schema, namespace, known, placed)
    kind = schema.get("type")
    inlined = dict(schema)
    if kind in _NAMED:
        name, namespace = _full_name(schema, namespace)
        placed.add(name)
        inlined |= {"name": name.rpartition(".")[2], "namespace": namespace}
        if "fields" in schema:
            inlined["fields"] = [
                {**field, "type": _inline_definitions(field["type"], namespace, known, placed)}
                for field in schema["fields"]
            ]
        return inlined
    for key in ("items", "values"):
        if key in schema:
            inlined[key] = _inline_definitions(schema[key], namespace, known, placed)
    if kind not in ("array", "map"):
        inlined["type"] = _inline_definitions(kind, namespace, known, placed)
    return inlined


def _used(name: str, namespace: str, known: Definitions, placed: set[str]) -> Any:
    full = f"{namespace}.{name}" if "." not in name and namespace and f"{namespace}.{name}" in known else name
    return full if full in placed or full not in known else _inline_definitions(known[full], "", known, placed)


def _defaults(schema: Any, namespace: str, known: Definitions, path: Path) -> Iterator[tuple[Path, str]]:
    if len(path) > MOST_LEVELS:
        return
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        if len(branches) == 1:  # Spark makes a struct of any other union
            yield from _defaults(branches[0], namespace, known, path)
        return
    if isinstance(schema, str):
        full = f"{namespace}.{schema}" if namespace and f"{namespace}.{schema}" in known else schema
        if full in known:
            yield from _defaults(known[full], "", known, path)
        return
    kind = schema.get("type")
    if kind == "array":
        yield from _defaults(schema["items"], namespace, known, (*path, ITEM))
    elif kind == "map":
        yield from _defaults(schema["values"], namespace, known, (*path, VALUE))
    elif kind == "record":
        _, namespace = _full_name(schema, namespace)
        for field in schema["fields"]:
            where = (*path, str(field["name"]))
            if "default" in field and field["default"] is not None:
                alone = {**field, "type": _inline_definitions(field["type"], namespace, known, set())}
                yield where, json.dumps({**NOTHING, "fields": [alone]})
            yield from _defaults(field["type"], namespace, known, where)
    elif isinstance(kind, (dict, list)):
        yield from _defaults(kind, namespace, known, path)


NOTHING = {"type": "record", "name": "ematix_flow_nothing", "fields": []}
"""The record without fields: read from no bytes by another schema, it has that schema's defaults."""


def avro_schema_of(columns: StructType, *, name: str) -> str:
    """Return the schema of rows with these columns, all nullable."""
    return json.dumps(_record(columns, _avro_name(name)))


def _record(columns: StructType, name: str) -> dict[str, Any]:
    fields = []
    for field in columns.fields:
        if not _NAME.fullmatch(field.name):
            raise PlanError(
                f"the column {field.name!r} cannot be a field of an Avro record",
                hint=f"name it with letters, digits and _, for example `{_avro_name(field.name)}`",
            )
        inner = _avro_type(field.dataType, f"{name}_{field.name}")
        fields.append({"name": field.name, "type": ["null", inner], "default": None})
    return {"type": "record", "name": name, "fields": fields}


def _avro_type(kind: DataType, name: str) -> Any:
    if isinstance(kind, t.StructType):
        return _record(kind, name)
    if isinstance(kind, t.ArrayType):
        return {"type": "array", "items": ["null", _avro_type(kind.elementType, name)]}
    if isinstance(kind, t.MapType) and isinstance(kind.keyType, t.StringType):
        return {"type": "map", "values": ["null", _avro_type(kind.valueType, name)]}
    if isinstance(kind, t.DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    simple: dict[str, Any] = {
        "boolean": "boolean", "byte": "int", "short": "int", "integer": "int", "long": "long", "float": "float",
        "double": "double", "string": "string", "binary": "bytes", "void": "string",
        "date": {"type": "int", "logicalType": "date"},
        "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
        "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
    }  # fmt: skip
    avro_type = simple.get(kind.typeName())
    if avro_type is None:
        raise PlanError(f"Avro has no type for {kind.simpleString()}", hint="cast the column in the SQL, to STRING say")
    return avro_type


def _avro_name(name: str) -> str:
    word = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return word if _NAME.fullmatch(word) else f"_{word}"
