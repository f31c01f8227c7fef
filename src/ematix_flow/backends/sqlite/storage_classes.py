"""Converts Arrow columns to SQLite's four storage classes and back."""

from __future__ import annotations

from ematix_flow.dataplane.type_mapping import arrow_type
from ematix_flow.declare.types import ColumnType, Numeric
from ematix_flow.foundation.errors import BadValue
from ematix_flow.foundation.lazy_imports import pa, pc

INTEGER, REAL, TEXT, BLOB = "integer", "real", "text", "blob"
_CLASSES = {
    "small_int": INTEGER, "integer": INTEGER, "big_int": INTEGER, "boolean": INTEGER, "float": REAL, "double": REAL,
    "bytes": BLOB,
}  # fmt: skip


def storage_class(column_type: ColumnType) -> str:
    """Return the storage class used to transport a type."""
    return _CLASSES.get(column_type.kind, TEXT)


def to_storage(batch: pa.RecordBatch, columns: list[tuple[str, ColumnType]]) -> pa.RecordBatch:
    """Return a batch in the types of `dataplane.type_mapping` as integers, floats, text and bytes."""
    arrays = [_stored(batch.column(index), name, kind) for index, (name, kind) in enumerate(columns)]
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in columns])


def from_storage(array: pa.Array, column_type: ColumnType) -> pa.Array:
    """Return a column of canonical values in its planned Arrow type."""
    wanted = arrow_type(column_type)
    return array if array.type == wanted else array.cast(wanted)


def storage_schema(columns: list[tuple[str, ColumnType]]) -> pa.Schema:
    """Return the schema of batches from `to_storage`."""
    types = {INTEGER: pa.int64(), REAL: pa.float64(), TEXT: pa.string(), BLOB: pa.binary()}
    return pa.schema([pa.field(name, types[storage_class(kind)]) for name, kind in columns])


def _stored(array: pa.Array, name: str, column_type: ColumnType) -> pa.Array:
    kind = column_type.kind
    if isinstance(column_type, Numeric):
        return _plain_decimal(array, column_type)
    if kind in ("float", "double"):
        if pc.any(pc.is_nan(array)).as_py():
            raise BadValue(
                f"column {name!r} holds NaN, which SQLite cannot keep; nothing was loaded",
                hint="turn it into NULL in the source: nanvl(…, NULL)",
                column=name,
            )
        return array.cast(pa.float64())
    if kind in ("timestamp", "timestamp_tz"):
        text = array.cast(pa.timestamp("us")).cast(pa.string())
        if kind == "timestamp":
            return text
        return pc.binary_join_element_wise(text, pa.scalar("+00:00"), "", null_handling="emit_null")
    return array.cast(
        pa.binary() if kind == "bytes" else pa.int64() if storage_class(column_type) == INTEGER else pa.string()
    )


def _plain_decimal(array: pa.Array, column_type: Numeric) -> pa.Array:
    """Return decimals as text with a fixed point: Arrow itself writes small numbers as 1E-7."""
    scale = column_type.scale
    if scale == 0:
        return array.cast(pa.string())
    whole = pa.Array.from_buffers(pa.decimal128(38, 0), len(array), array.buffers(), array.null_count, array.offset)
    digits = whole.cast(pa.string())
    is_negative = pc.starts_with(digits, "-")
    digits = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), width=scale + 1, padding="0")
    before, after = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale)
    sign = pc.if_else(is_negative, "-", "")
    text: pa.Array = pc.binary_join_element_wise(sign, before, ".", after, "", null_handling="emit_null")
    return text
