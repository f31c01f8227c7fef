"""Avro schemas of Kafka Connect's converters: column types beyond Avro's own (`connect.name`)."""

from __future__ import annotations

from typing import Any

from ematix_flow.messages.avro_schema import Definitions

_NAME, _PARAMETERS = "connect.name", "connect.parameters"
_TYPES = {
    "boolean": "boolean", "int": "int32", "long": "int64", "float": "float", "double": "double", "bytes": "bytes",
    "fixed": "bytes", "string": "string", "enum": "string", "array": "array", "map": "map", "record": "struct",
}  # fmt: skip


def without_logical_types(schema: Any) -> Any:
    """Return the schema without Avro's logical types where Connect has its own name for the type."""
    if isinstance(schema, list):
        return [without_logical_types(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: value for key, value in schema.items() if key != "logicalType" or _NAME not in schema}
    for key in ("type", "items", "values"):
        if isinstance(plain.get(key), (dict, list)):
            plain[key] = without_logical_types(plain[key])
    if "fields" in plain:
        plain["fields"] = [{**field, "type": without_logical_types(field["type"])} for field in plain["fields"]]
    return plain


def connect_kinds(schema: Any, known: Definitions) -> dict[str, str]:
    """Return Connect's types of the row columns in a change event's schema, by column name.

    The format is `name|scale|precision|type|item|…`. A column with only Avro's own logical type is left out.
    """
    for field in _record(schema, known).get("fields", ()):
        if field["name"] in ("after", "before"):
            row = _record(field["type"], known)
            kinds_by_name = {str(one["name"]): _kind(one["type"], known) for one in row.get("fields", ())}
            if kinds_by_name:
                return {name: kind for name, kind in kinds_by_name.items() if kind is not None}
    return {}


def _plain(schema: Any, known: Definitions) -> Any:
    """Return the one branch of a union that is not null, with type names resolved; None where there are several."""
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        return _plain(branches[0], known) if len(branches) == 1 else None
    if isinstance(schema, str):
        return known.get(schema) or next((one for name, one in known.items() if name.endswith(f".{schema}")), schema)
    if isinstance(schema, dict) and isinstance(schema.get("type"), (dict, list)):
        return _plain(schema["type"], known)
    return schema


def _record(schema: Any, known: Definitions) -> dict[str, Any]:
    plain = _plain(schema, known)
    return plain if isinstance(plain, dict) and plain.get("type") == "record" else {}


def _kind(schema: Any, known: Definitions) -> str | None:
    plain = _plain(schema, known)
    if isinstance(plain, str):
        plain = {"type": plain}
    if not isinstance(plain, dict) or ("logicalType" in plain and _NAME not in plain):
        return None
    base = _TYPES.get(str(plain.get("type")), "")
    item = _kind(plain["items"], known) if base == "array" else None
    return "|".join([*_connect_kind(plain, base), base, *[*(item or "").split("|"), "", ""][:3]])


def _connect_kind(schema: dict[str, Any], base: str) -> list[str]:
    parameters = schema.get(_PARAMETERS) or {}
    scale, precision = (
        str(parameters.get(name, schema.get(own, "")))
        for name, own in (("scale", "scale"), ("connect.decimal.precision", "precision"))
    )
    return [str(schema.get(_NAME) or base), scale, precision]
