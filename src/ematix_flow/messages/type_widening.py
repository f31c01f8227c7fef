"""Type widening: the narrowest type that holds two others, and rows of one type as rows of a wider one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ematix_flow.foundation.lazy_imports import f, t

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

ITEM, VALUE = "[]", "{}"
"""The path steps into the elements of an array and the values of a map."""
MOST_FIELDS = 256
"""An object with more names than this counts as a dictionary, and is kept as JSON text."""
MOST_LEVELS = 16

Path = tuple[str, ...]
_WHOLE = ("byte", "short", "integer", "long")
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}


def widen_type(known: DataType, other: DataType) -> DataType:
    """Return the narrowest type that holds the values of both; text where no other type does."""
    if known == other or isinstance(other, t.NullType):
        return known
    if isinstance(known, t.NullType):
        return other
    if isinstance(known, t.StructType) and isinstance(other, t.StructType):
        merged = widen_structs(known, other)
        return merged if len(merged.fields) <= MOST_FIELDS else t.StringType()
    if isinstance(known, t.ArrayType) and isinstance(other, t.ArrayType):
        return t.ArrayType(widen_type(known.elementType, other.elementType))
    if isinstance(known, t.MapType) and isinstance(other, t.MapType):
        return t.MapType(widen_type(known.keyType, other.keyType), widen_type(known.valueType, other.valueType))
    if isinstance(known, t.NumericType) and isinstance(other, t.NumericType):
        return _number(known, other)
    moments = (t.DateType, t.TimestampNTZType, t.TimestampType)
    if isinstance(known, moments) and isinstance(other, moments):
        return max((known, other), key=lambda kind: moments.index(type(kind)))
    return t.StringType()


def widen_structs(known: StructType, other: StructType) -> StructType:
    """Return a struct with the fields of both, those of the first one first."""
    fields = {field.name: field.dataType for field in known.fields}
    for field in other.fields:
        fields[field.name] = widen_type(fields[field.name], field.dataType) if field.name in fields else field.dataType
    return t.StructType([t.StructField(name, kind) for name, kind in fields.items()])


def _number(known: DataType, other: DataType) -> DataType:
    names = (known.typeName(), other.typeName())
    if all(name in _WHOLE for name in names):
        return max((known, other), key=lambda kind: _WHOLE.index(kind.typeName()))
    if any(isinstance(kind, (t.FloatType, t.DoubleType)) for kind in (known, other)):
        return t.DoubleType()
    (digits, scale), (other_digits, other_scale) = _digits(known), _digits(other)
    widest = max(scale, other_scale)
    whole = max(digits - scale, other_digits - other_scale)
    return t.DecimalType(whole + widest, widest) if whole + widest <= 38 else t.DoubleType()


def _digits(kind: DataType) -> tuple[int, int]:
    return (kind.precision, kind.scale) if isinstance(kind, t.DecimalType) else (_DIGITS[kind.typeName()], 0)


def project_value(
    column: Column,
    source: DataType,
    target: DataType,
    *,
    defaults: Mapping[Path, Callable[[DataType], Column | None]] | None = None,
    path: Path = (),
) -> Column:
    """Return a value of one type as a value of a wider one; a missing field gets its default, or NULL."""

    def inner(item: Column, kind: DataType, wanted: DataType, *step: str) -> Column:
        return project_value(item, kind, wanted, defaults=defaults, path=(*path, *step))

    def field(wanted: Any) -> Column:
        held = {one.name: one.dataType for one in source.fields}  # type: ignore[attr-defined]
        if wanted.name in held:
            return inner(column.getField(wanted.name), held[wanted.name], wanted.dataType, wanted.name)
        make = (defaults or {}).get((*path, wanted.name))
        default = make(wanted.dataType) if make is not None else None
        return f.lit(None).cast(wanted.dataType) if default is None else default

    if isinstance(source, t.StructType) and isinstance(target, t.StructType):
        if same_shape(source, target):
            return column
        return f.when(column.isNotNull(), f.struct(*(field(wanted).alias(wanted.name) for wanted in target.fields)))
    if same_shape(source, target):
        return column
    if isinstance(source, t.ArrayType) and isinstance(target, t.ArrayType):
        kinds = (source.elementType, target.elementType)
        return f.transform(column, lambda item: inner(item, *kinds, ITEM))
    if isinstance(source, t.MapType) and isinstance(target, t.MapType):
        values = (source.valueType, target.valueType)
        return f.transform_values(column, lambda _, item: inner(item, *values, VALUE))
    if isinstance(target, t.StringType) and isinstance(source, (t.StructType, t.ArrayType, t.MapType)):
        return f.to_json(column)
    # A value that does not fit a declared type becomes NULL, which `written` detects: a row must not raise.
    return column.try_cast(target)


def same_shape(one: DataType, other: DataType) -> bool:
    """Return whether two types are equal apart from nullability and metadata."""
    return nullable_type(one) == nullable_type(other)


def nullable_type(kind: DataType) -> DataType:
    """Return the type with everything nullable, and without metadata."""
    if isinstance(kind, t.StructType):
        return t.StructType([t.StructField(field.name, nullable_type(field.dataType)) for field in kind.fields])
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(nullable_type(kind.elementType))
    if isinstance(kind, t.MapType):
        return t.MapType(nullable_type(kind.keyType), nullable_type(kind.valueType))
    return kind


def distinct_names(names: list[str], taken: tuple[str, ...] = ()) -> list[str]:
    """Return the names made unique regardless of case: Spark's SQL does not distinguish `id` from `ID`.

    >>> distinct_names(["id", "ID", "_raw"], ("_raw",))
    ['id', 'ID_2', '_raw_2']
    """
    used = {name.lower() for name in taken}
    kept = []
    for name in names:
        chosen, number = name, 1
        while chosen.lower() in used or (number > 1 and chosen in names):
            number += 1
            chosen = f"{name}_{number}"
        used.add(chosen.lower())
        kept.append(chosen)
    return kept


def quoted(name: str) -> str:
    """Return the name quoted for Spark's SQL, with any characters."""
    return "`" + name.replace("`", "``") + "`"
