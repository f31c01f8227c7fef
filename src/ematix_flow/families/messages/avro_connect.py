"""Avro schemas of Kafka Connect's converters: column types beyond Avro's own (`connect.name`)."""

from __future__ import annotations

from typing import Any

from ematix_flow.families.messages.avro_schema import Definitions

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
    made = {key: value for key, value in schema.items() if key != "logicalType" or _NAME not in schema}
    for key in ("type", "items", "values"):
        if isinstance(made.get(key), (dict, list)):
            made[key] = without_logical_types(made[key])
    if "fields" in made:
        made["fields"] = [{**field, "type": without_logical_types(field["type"])} for field in made["fields"]]
    return made


def kinds(schema: Any, known: Definitions) -> dict[str, str]:
    """Return Connect's types of the row columns in a change event's schema, by column name.

    The format is `name|scale|precision|type|item|…`. A column with only Avro's own logical type is left out.
    """
    for field in _record(schema, known).get("fields", ()):
        if field["name"] in ("after", "before"):
            row = _record(field["type"], known)
            found = {str(one["name"]): _kind(one["type"], known) for one in row.get("fields", ())}
            if found:
                return {name: kind for name, kind in found.items() if kind is not None}
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
    found = _plain(schema, known)
    return found if isinstance(found, dict) and found.get("type") == "record" else {}


def _kind(schema: Any, known: Definitions) -> str | None:
    found = _plain(schema, known)
    if isinstance(found, str):
        found = {"type": found}
    if not isinstance(found, dict) or ("logicalType" in found and _NAME not in found):
        return None
    base = _TYPES.get(str(found.get("type")), "")
    item = _kind(found["items"], known) if base == "array" else None
    return "|".join([*_meaning(found, base), base, *[*(item or "").split("|"), "", ""][:3]])


def _meaning(schema: dict[str, Any], base: str) -> list[str]:
    said = schema.get(_PARAMETERS) or {}
    scale, precision = (
        str(said.get(name, schema.get(own, "")))
        for name, own in (("scale", "scale"), ("connect.decimal.precision", "precision"))
    )
    return [str(schema.get(_NAME) or base), scale, precision]
