"""Types of JSON values: as learned, as Spark reads them, and as output columns have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.foundation.lazy_imports import t
from ematix_flow.messages.type_widening import distinct_names

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructField, StructType


def read_type(kind: DataType) -> DataType:
    """Return the type that Spark reads: text where Spark would accept too much, or where no value is known yet."""
    if isinstance(kind, t.StructType) and kind.fields:
        inner = [(field.name, read_type(field.dataType)) for field in kind.fields]
        return t.StructType([t.StructField(name, read_as) for name, read_as in inner])
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(read_type(kind.elementType))
    if isinstance(kind, (t.NullType, t.StructType, t.TimestampType)):
        return t.StringType()
    return kind


def has_values(kind: DataType) -> bool:
    """Return whether the type has values, that is, contains more than nulls and empty structs."""
    if isinstance(kind, t.StructType):
        return any(has_values(field.dataType) for field in kind.fields)
    if isinstance(kind, t.ArrayType):
        return has_values(kind.elementType)
    return not isinstance(kind, t.NullType)


def output_type(kind: DataType) -> DataType:
    """Return the type without the parts that have no values, and with unique names."""
    if isinstance(kind, t.StructType):
        fields = [(name, output_type(field.dataType)) for name, field in named_fields(kind)]
        return t.StructType([t.StructField(name, inner) for name, inner in fields])
    return t.ArrayType(output_type(kind.elementType)) if isinstance(kind, t.ArrayType) else kind


def named_fields(kind: StructType) -> list[tuple[str, StructField]]:
    """Return the fields that have values, each with a unique name."""
    held = [field for field in kind.fields if has_values(field.dataType)]
    return list(zip(distinct_names([field.name for field in held]), held, strict=True))


def is_read_unchanged(kind: DataType) -> bool:
    """Return whether the output type is the type that Spark reads."""
    return kind == read_type(kind) == output_type(kind)


def part(value: Column, kind: StructType, name: str) -> Column:
    """Return a field of a read value; where two names differ only in case, Spark finds neither, so they are renamed."""
    names = [field.name for field in kind.fields]
    unique = distinct_names(names)
    if unique == names:
        return value.getField(name)
    read_as = [read_type(field.dataType) for field in kind.fields]
    renamed = t.StructType([t.StructField(other, inner) for other, inner in zip(unique, read_as, strict=True)])
    return value.cast(renamed).getField(unique[names.index(name)])
