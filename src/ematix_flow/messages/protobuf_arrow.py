"""Conversion of Protobuf payloads from and to Arrow columns in Spark's tasks; protobuf's C code parses them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ematix_flow.dataplane.task_errors import to_carried_error
from ematix_flow.foundation.errors import BadValue, FlowError
from ematix_flow.foundation.lazy_imports import pa, t

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_DEEPEST = 4
"""The most levels at which a message type may contain itself; deeper ones are left out."""
TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPED = {
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "String", "Bytes")
}
_AS_JSON = {f"google.protobuf.{name}" for name in ("Duration", "Struct", "Value", "ListValue", "FieldMask")}


@lru_cache(maxsize=256)
def message_class(descriptors: bytes, name: str) -> Any:
    """Return the class of a message, from a pool of its own: two schemas may describe messages of the same name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def spark_type(descriptor: Any, above: tuple[str, ...] = ()) -> DataType | None:
    """Return the Spark type of a message; None for one without fields, or at too deep a recursion."""
    name = descriptor.full_name
    if name == TIMESTAMP:
        return t.TimestampType()
    if name in _WRAPPED:
        return _scalar_type(descriptor.fields_by_name["value"])
    if name in _AS_JSON:
        return t.StringType()
    if above.count(name) >= _DEEPEST:
        return None
    struct_fields = [(field.name, _field_type(field, (*above, name))) for field in descriptor.fields]
    fields = [t.StructField(inner, kind) for inner, kind in struct_fields if kind is not None]
    return t.StructType(fields) if fields else None


def _field_type(field: Any, above: tuple[str, ...]) -> DataType | None:
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        kind = _one_type(value, above)
        return None if kind is None else t.MapType(_scalar_type(key), kind)
    kind = _one_type(field, above)
    return t.ArrayType(kind) if kind is not None and field.is_repeated else kind


def _one_type(field: Any, above: tuple[str, ...]) -> DataType | None:
    return _scalar_type(field) if field.message_type is None else spark_type(field.message_type, above)


def _scalar_type(field: Any) -> DataType:
    kinds = {
        field.CPPTYPE_BOOL: t.BooleanType(), field.CPPTYPE_STRING: t.StringType(), field.CPPTYPE_ENUM: t.StringType(),
        field.CPPTYPE_INT32: t.IntegerType(), field.CPPTYPE_INT64: t.LongType(), field.CPPTYPE_UINT32: t.LongType(),
        field.CPPTYPE_UINT64: t.DecimalType(20, 0), field.CPPTYPE_FLOAT: t.FloatType(),
        field.CPPTYPE_DOUBLE: t.DoubleType(),
    }  # fmt: skip
    return t.BinaryType() if field.type == field.TYPE_BYTES else kinds[field.cpp_type]


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def payload_reader(descriptors: bytes, name: str, arrow_type: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    """Return a function that parses payloads; invalid ones become NULL."""

    def read(column: pa.Array) -> pa.Array:
        from google.protobuf.message import DecodeError

        message_type = message_class(descriptors, name)

        def one(data: bytes | None) -> Any:
            try:
                return None if data is None else message_type.FromString(data)
            except DecodeError:
                return None

        return _messages([one(data) for data in column.to_pylist()], message_type.DESCRIPTOR, arrow_type)

    return read


def _messages(messages: list[Any], descriptor: Any, kind: pa.DataType) -> pa.Array:
    name = descriptor.full_name
    if name == TIMESTAMP:
        return pa.array([_micros(one) for one in messages], type=pa.int64()).cast(kind)
    if name in _WRAPPED:
        return _scalars(
            [None if one is None else one.value for one in messages], descriptor.fields_by_name["value"], kind
        )
    if name in _AS_JSON:
        return pa.array([None if one is None else _json(one) for one in messages], type=kind)
    columns = [_column(messages, descriptor.fields_by_name[field.name], field.type) for field in kind]
    absent = pa.array([one is None for one in messages], type=pa.bool_())
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=absent)


def _micros(moment: Any) -> int | None:
    return None if moment is None else moment.seconds * 1_000_000 + moment.nanos // 1000


def _json(message: Any) -> str:
    import json

    from google.protobuf import json_format

    data = json_format.MessageToDict(message)
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)


def _column(messages: list[Any], field: Any, kind: pa.DataType) -> pa.Array:
    name = field.name
    if _is_map(field):
        return _maps([None if one is None else getattr(one, name) for one in messages], field, kind)
    if field.is_repeated:
        return _lists([None if one is None else getattr(one, name) for one in messages], field, kind)
    if field.has_presence:
        values = [getattr(one, name) if one is not None and one.HasField(name) else None for one in messages]
    else:
        values = [None if one is None else getattr(one, name) for one in messages]
    return _values(values, field, kind)


def _values(values: list[Any], field: Any, kind: pa.DataType) -> pa.Array:
    return _scalars(values, field, kind) if field.message_type is None else _messages(values, field.message_type, kind)


def _scalars(values: list[Any], field: Any, kind: pa.DataType) -> pa.Array:
    if field.enum_type is not None:
        names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
        values = [None if one is None else names.get(one, str(one)) for one in values]
    if pa.types.is_decimal(kind):
        from decimal import Decimal

        values = [None if one is None else Decimal(one) for one in values]
    return pa.array(values, type=kind)


def _lists(lists: Sequence[Any], field: Any, kind: pa.DataType) -> pa.Array:
    items = _values([item for one in lists if one is not None for item in one], field, kind.value_type)
    return pa.ListArray.from_arrays(_offsets(lists), items, type=kind)


def _maps(maps: Sequence[Any], field: Any, kind: pa.DataType) -> pa.Array:
    key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
    entries = [(name, one[name]) for one in maps if one is not None for name in one]
    keys = _scalars([name for name, _ in entries], key, kind.key_type)
    values = _values([item for _, item in entries], value, kind.item_type)
    return pa.MapArray.from_arrays(_offsets(maps), keys, values, type=kind)


def _offsets(groups: Sequence[Any]) -> pa.Array:
    begins: list[int | None] = []
    at = 0
    for group in groups:
        begins.append(None if group is None else at)  # a NULL offset is a NULL list
        at += 0 if group is None else len(group)
    return pa.array([*begins, at], type=pa.int32())


def payload_writer(descriptors: bytes, name: str) -> Callable[[pa.Array], pa.Array]:
    """Return a function that serializes rows as messages of this name; a NULL row stays NULL."""

    def write(column: pa.Array) -> pa.Array:
        message_type = message_class(descriptors, name)
        try:
            written = [None if row is None else _message_from_row(message_type(), row) for row in column.to_pylist()]
        except (ValueError, TypeError, OverflowError) as exc:  # invalid text, or a timestamp out of range
            raise to_carried_error(exc, _unwritable) from exc
        return pa.array(written, type=pa.binary())

    return write


def _unwritable(exc: Exception) -> FlowError:
    return BadValue(
        f"a row cannot be written as Protobuf: {exc}", hint="look at its values; SQL can make others of them"
    )


def _message_from_row(message: Any, row: dict[str, Any]) -> bytes:
    _fill(message, row)
    encoded: bytes = message.SerializeToString(deterministic=True)
    return encoded


def _fill(message: Any, row: dict[str, Any]) -> None:
    for field in message.DESCRIPTOR.fields:
        value = row.get(field.name)
        if value is None:
            continue
        if _is_map(field):
            _fill_map(getattr(message, field.name), dict(value), field)
        elif field.is_repeated:
            _fill_list(getattr(message, field.name), value, field)
        elif field.message_type is None:
            setattr(message, field.name, value)
        else:
            getattr(message, field.name).SetInParent()
            _fill_one(getattr(message, field.name), value)


def _fill_one(message: Any, value: Any) -> None:
    if message.DESCRIPTOR.full_name == TIMESTAMP:
        message.FromDatetime(value)
    else:
        _fill(message, value)


def _fill_list(target: Any, values: list[Any], field: Any) -> None:
    for value in values:
        if value is None:  # a repeated field cannot hold NULL
            continue
        if field.message_type is None:
            target.append(value)
        else:
            _fill_one(target.add(), value)


def _fill_map(target: Any, entries: dict[Any, Any], field: Any) -> None:
    is_message = field.message_type.fields_by_name["value"].message_type is not None
    for key, value in entries.items():
        if value is None:
            continue
        if is_message:
            target[key].SetInParent()
            _fill_one(target[key], value)
        else:
            target[key] = value
