"""Mapping of Spark's types to declared types."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.read import SourceColumn
from ematix_flow.dataplane.spark_session import is_active_session_sail
from ematix_flow.dataplane.type_mapping import SPARK_TYPES, types_by_native
from ematix_flow.declare.types import JSON, ColumnType, Numeric, String, Text
from ematix_flow.foundation.errors import Unsupported
from ematix_flow.sql.spark_text import quote

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_PLAIN = types_by_native({kind: native.lower() for kind, native in SPARK_TYPES.items()}, {"tinyint": "small_int"})
_DOCUMENTS = ("struct", "array", "map", "variant")
_SIZED = re.compile(r"^(decimal|varchar|char)\((\d+)(?:,(\d+))?\)$")
_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
DECLARED = "flow_type"
"""The key, in the metadata of a field, of the declared type's spec where Spark has no such type."""


def type_of(data_type: DataType, metadata: dict[str, Any] | None = None) -> ColumnType | None:
    """Return the declared type nearest to a Spark type, None when there is no equivalent."""
    native = str((metadata or {}).get(_VARCHAR) or data_type.simpleString())
    sized = _SIZED.match(native)
    if sized:
        name, first, second = sized.groups()
        return Numeric(int(first), int(second or 0)) if name == "decimal" else String(int(first))
    if native.startswith("string "):  # a string with a collation
        return Text()
    if native.startswith(_DOCUMENTS):
        return JSON()
    return _PLAIN.get(native)


def source_columns(schema: StructType) -> tuple[SourceColumn, ...]:
    """Return the columns of a query's result."""
    return tuple(
        SourceColumn(field.name, field.dataType.simpleString(), type_of(field.dataType, field.metadata))
        for field in schema.fields
    )


def carrier_expressions(schema: StructType) -> list[str]:
    """Return expressions that convert every column to a supported type: nested types to JSON, other types to text."""
    expressions: list[str] = []
    for field in schema.fields:
        name, native = quote(field.name), field.dataType.simpleString()
        if native.startswith(_DOCUMENTS):
            if "decimal" in native and is_active_session_sail():
                raise Unsupported(
                    f'engine="sail" is not for {field.name}: decimals inside of it may lose their sign as JSON',
                    hint='use engine="local", or select its fields one by one',
                )
            expressions.append(f"to_json({name}) AS {name}")
        elif native == "tinyint":
            expressions.append(f"CAST({name} AS SMALLINT) AS {name}")
        elif type_of(field.dataType, field.metadata) is None or native.startswith("string "):
            expressions.append(f"CAST({name} AS STRING) AS {name}")
        else:
            expressions.append(name)
    return expressions
