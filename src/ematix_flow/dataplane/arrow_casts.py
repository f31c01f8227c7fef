"""Casts of Arrow columns to the declared types: the same values as the Spark lane, or an error with the value."""

from __future__ import annotations

from typing import Any

from ematix_flow.contract.lane import Carried
from ematix_flow.dataplane.type_mapping import arrow_type
from ematix_flow.declare.types import ColumnType, Numeric
from ematix_flow.foundation.errors import BadValue
from ematix_flow.foundation.lazy_imports import pa, pc
from ematix_flow.foundation.redact import mask

_INTEGERS = ("small_int", "integer", "big_int")
_TEXTS = ("text", "string")
_DOCUMENTS = ("json", "jsonb")
_MOMENTS = ("timestamp", "timestamp_tz")
_UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"


def is_convertible(source_type: ColumnType, wanted: ColumnType) -> bool:
    """Return whether Arrow converts one type to the other exactly as Spark does."""
    have, want = source_type.kind, wanted.kind
    if have == want:
        return True
    if want in _TEXTS:
        return have in (*_TEXTS, *_DOCUMENTS, "uuid")
    if want in _DOCUMENTS:
        return have in _DOCUMENTS
    if have in _INTEGERS:
        return want in (*_INTEGERS, "numeric", "float", "double")
    if want == "uuid":
        return have in _TEXTS
    if want in _MOMENTS:
        return have in (*_MOMENTS, "date")
    return have in ("float", "double") and want in ("float", "double")


def shape_batch(batch: Any, input_columns: Carried, wanted: Carried) -> Any:
    """Return the wanted columns of a batch, each in its exact Arrow type."""
    places = {name: place for place, (name, _) in enumerate(input_columns)}
    arrays, fields = [], []
    for name, kind in wanted:
        place = places[name]
        arrays.append(_converted(batch.column(place), input_columns[place][1], kind, name))
        fields.append(pa.field(name, arrow_type(kind)))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _converted(column: Any, source_type: ColumnType, wanted: ColumnType, name: str) -> Any:
    if wanted.kind == "uuid":
        return _uuid(column, name, wanted)
    to = arrow_type(wanted)
    if column.type == to:
        return column
    try:
        return _cast(column, source_type, wanted, to)
    except pa.ArrowInvalid:
        raise _bad_value(column, source_type, wanted, name) from None


def _cast(column: Any, source_type: ColumnType, wanted: ColumnType, to: Any) -> Any:
    if wanted.kind in ("float", "double"):
        return column.cast(to, safe=False)  # a double rounds numbers with more digits, as in Spark
    if isinstance(wanted, Numeric):
        if source_type.kind in _INTEGERS:
            column = column.cast(pa.decimal128(19, 0))
        scale = column.type.scale
        if scale > wanted.scale:
            column = pc.round(column, ndigits=wanted.scale, round_mode="half_towards_infinity")
        return column.cast(pa.decimal256(76, wanted.scale)).cast(to)
    return column.cast(to)


def _uuid(column: Any, name: str, wanted: ColumnType) -> Any:
    fits = pc.match_substring_regex(column, _UUID)
    if pc.all(fits).as_py() is False:
        raise _conversion_error(column.filter(pc.invert(fits))[0].as_py(), name, wanted)
    return pc.utf8_lower(column)


def _bad_value(column: Any, source_type: ColumnType, wanted: ColumnType, name: str) -> BadValue:
    for value in column:
        try:
            _cast(pa.array([value.as_py()], column.type), source_type, wanted, arrow_type(wanted))
        except pa.ArrowInvalid:
            return _conversion_error(value.as_py(), name, wanted)
    return _conversion_error("a value", name, wanted)


def _conversion_error(value: Any, name: str, wanted: ColumnType) -> BadValue:
    return BadValue(
        f"column {name!r}: {mask(str(value)[:80])!r} is not a {wanted}; nothing was loaded",
        hint="correct the source, or parse it with a normalizer (parse_int, parse_timestamp, …)",
        column=name,
    )
