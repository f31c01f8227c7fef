"""Converts texts of CSV files to the declared types, so that no pass over the file has to infer types.

Every value is converted by itself, as type inference would treat it: 12.0 is an integer, a timestamp with an offset
becomes UTC, and a number is not a date.
"""

from __future__ import annotations

from collections.abc import Sequence

from ematix_flow.backends.files.inference import NUMBER, ZONED
from ematix_flow.dataplane.task_errors import strict_value
from ematix_flow.dataplane.type_mapping import spark_type
from ematix_flow.declare.types import Column
from ematix_flow.sql.spark_text import quote

_TEXTS = ("text", "string", "uuid", "json", "jsonb")
_INTEGERS = ("small_int", "integer", "big_int")
_MOMENTS = ("date", "timestamp", "timestamp_tz")
_OTHERS = ("numeric", "float", "double", "boolean")


def can_declare(columns: Sequence[Column]) -> bool:
    """Return whether these columns can be read as texts; a normalizer of another type needs values of that type."""
    return all(
        column.type.kind in _TEXTS or (not column.normalizers and column.type.kind in (*_INTEGERS, *_MOMENTS, *_OTHERS))
        for column in columns
    )


def declared_value(column: Column) -> str:
    """Return the SQL of a text column in its declared type; text types stay as they are and are checked later."""
    name, kind, wanted = quote(column.name), column.type.kind, spark_type(column.type)
    if kind in _TEXTS:
        return name
    tried = f"try_cast({name} AS {wanted})"
    if kind in _INTEGERS:
        return f"{_whole_number(column, tried)} AS {name}"
    if kind in _MOMENTS:
        instant = f"try_cast({name} AS TIMESTAMP)"
        value = f"CASE WHEN {name} RLIKE '{ZONED}' THEN CAST({instant} AS {wanted}) ELSE {tried} END"
        valid = f"NOT {name} RLIKE '{NUMBER}' AND {value} IS NOT NULL"
        return f"{strict_value(column, valid, value)} AS {name}"
    return f"{strict_value(column, f'{tried} IS NOT NULL', tried)} AS {name}"


def _whole_number(column: Column, tried: str) -> str:
    """Return the SQL of an integer that may be written with an exponent or with zeros after its decimal point."""
    name = quote(column.name)
    near, exact = f"try_cast({name} AS DOUBLE)", f"try_cast({name} AS DECIMAL(38,9))"
    written = f"{name} RLIKE '{NUMBER}' AND {near} = floor({near}) AND {exact} = floor({exact})"
    value = f"coalesce({tried}, try_cast({exact} AS {spark_type(column.type)}))"
    return strict_value(column, f"({tried} IS NOT NULL OR {written}) AND {value} IS NOT NULL", value)
