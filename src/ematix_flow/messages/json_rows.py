"""JSON messages as rows: by declared columns, or by learned columns that grow with the messages.

Spark reads a text up to the end of its first object, and silently drops the rest. A text whose only `}` is its last
character has no rest; any other one is parsed once more, quickly, inside `{"value": …, "end": 1}`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from ematix_flow.foundation.lazy_imports import f, t
from ematix_flow.messages.decoding_state import (
    EMPTY,
    FIRST_LOOK,
    NOT_LEARNED,
    TOMBSTONE,
    DecodedMessages,
    DecodingState,
    declared_columns,
    known_columns,
    remember_columns,
)
from ematix_flow.messages.json_schema_inference import instant, learned_type
from ematix_flow.messages.json_types import (
    has_values,
    is_read_unchanged,
    named_fields,
    output_type,
    part,
    read_type,
)
from ematix_flow.messages.type_widening import widen_structs

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

_BROKEN = "_flow_broken"
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _BROKEN,
    "allowSingleQuotes": "false",
    "timeZone": "UTC",
}
_AS_TEXT = {"columnNameOfCorruptRecord": _BROKEN}


def read(frame: DataFrame, decoding: DecodingState) -> DecodedMessages:
    """Decode the messages by the declared or the learned columns; infer columns from the first messages."""
    framed = decoding.registry is not None
    if decoding.fields:
        return _cached_expressions(frame, decoding, declared_columns(decoding.fields), is_learning=False, framed=framed)
    columns = known_columns(decoding)
    if columns is None:
        columns = learned_type(frame.limit(FIRST_LOOK), text_of("value", framed=framed), read=parts_read)
        if columns is not None:
            remember_columns(decoding, columns)
    return _cached_expressions(frame, decoding, columns or t.StructType([]), is_learning=True, framed=framed)


def _cached_expressions(
    frame: DataFrame, decoding: DecodingState, columns: StructType, *, is_learning: bool, framed: bool
) -> DecodedMessages:
    """Return cached expressions, which serve every micro-batch as long as the columns stay the same."""
    key = ("json", columns.json(), is_learning, framed)
    known = decoding.learned.expressions.get(key)
    if known is None:
        known = _by_columns(frame, columns, is_learning=is_learning, framed=framed)
        decoding.learned.expressions.clear()
        decoding.learned.expressions[key] = known
    return replace(known, frame=frame, key=key)


def learn(unread: DataFrame, decoding: DecodingState) -> bool:
    """Widen the columns by the rows that did not fit them; return False when that changes nothing."""
    learned = learned_type(unread, text_of("_raw", framed=decoding.registry is not None), read=parts_read)
    known = known_columns(decoding) or t.StructType([])
    return learned is not None and remember_columns(decoding, widen_structs(known, learned))


def text_of(column: str, *, framed: bool) -> Column:
    """Return the text of a message; NULL where its bytes are not valid UTF-8."""
    return f.try_validate_utf8(_body(column, framed=framed).cast("string"))


def _body(column: str, *, framed: bool) -> Column:
    """Return the bytes of the text, without the prefix that a JSON Schema serializer writes before it."""
    body = f.col(column)
    if framed:
        body = f.when(f.substring(body, 1, 1) == f.lit(b"\x00"), f.substr(body, f.lit(6))).otherwise(body)
    return body


def _is_flat(body: Column) -> Column:
    """Return whether the only `}` of a text is its last character; searching bytes is much cheaper than a regex."""
    text, inner = body.cast("string"), f.substr(body, f.lit(1), f.octet_length(body) - 1)
    return text.startswith("{") & text.endswith("}") & ~inner.cast("string").contains("}")


def _by_columns(frame: DataFrame, columns: StructType, *, is_learning: bool, framed: bool) -> DecodedMessages:
    held = [field for field in columns.fields if has_values(field.dataType)]
    body = _body("value", framed=framed)
    text = body.cast("string")
    value, wide = _value_read(text, columns), t.StructType([*columns.fields, _broken_field()])
    shaped = tuple((field.name, _shaped(part(value, wide, field.name), field.dataType)) for field in held)
    is_whole = value.getField(_BROKEN).isNull() & (
        _is_flat(body) | (_starts_object(text) == "{") & _is_single_value(text)
    )
    fits = is_whole & ~_misfits(value, wide)
    is_known = f.is_valid_utf8(text) & ~_has_new_names(text, columns) if is_learning else f.is_valid_utf8(text)
    # The condition that holds for nearly every row comes first, so that the others are rarely evaluated.
    why = f.when(fits & is_known, f.lit(None).cast("string")).otherwise(
        f.when(f.col("value").isNull(), TOMBSTONE)
        .when(f.length("value") == 0, EMPTY)
        .when(~f.is_valid_utf8(text), "the message is not valid UTF-8")
        .when(fits, f"{NOT_LEARNED}the message has names that no column has")
        .otherwise(_reason(text, value, columns, is_learning=is_learning))
    )
    fields = [t.StructField(field.name, output_type(field.dataType)) for field in held]
    return DecodedMessages(frame, shaped, t.StructType(fields), why)


def _starts_object(text: Column) -> Column:
    return f.substring(f.ltrim(text), 1, 1)


def _value_read(text: Column, columns: StructType) -> Column:
    """Return the object parsed by these columns; the corrupt-record field holds the text where it does not match."""
    read_as = [t.StructField(field.name, read_type(field.dataType)) for field in columns.fields]
    return f.from_json(text, t.StructType([*read_as, _broken_field()]), _OPTIONS)


def _broken_field() -> StructField:
    return t.StructField(_BROKEN, t.StringType())


def _is_single_value(text: Column) -> Column:
    """Return whether the text is exactly one JSON value."""
    inside = f.concat(f.lit('{"value":'), text, f.lit(',"end":1}'))
    return f.from_json(inside, "value STRING, end INT", _OPTIONS).getField("end").isNotNull()


def parts_read(text: Column, columns: StructType) -> Column:
    """Return the object parsed by these columns, without the corrupt-record field."""
    return _value_read(text, columns).dropFields(_BROKEN)


def _shaped(value: Column, kind: DataType) -> Column:
    """Return a read value as the column's output type."""
    if is_read_unchanged(kind):
        return value
    if isinstance(kind, t.StructType):
        parts = [
            _shaped(part(value, kind, field.name), field.dataType).alias(name) for name, field in named_fields(kind)
        ]
        return f.when(value.isNotNull(), f.struct(*parts))
    if isinstance(kind, t.ArrayType):
        element = kind.elementType
        return f.transform(value, lambda item: _shaped(item, element))
    return instant(value)


def _misfits(value: Column, kind: DataType) -> Column:
    """Return whether a value that was read as text does not fit its column."""
    if isinstance(kind, t.NullType):
        return value.isNotNull()
    if isinstance(kind, t.StructType) and not kind.fields:
        return value.isNotNull() & ~value.rlike(r"^\{\s*\}$")
    if isinstance(kind, t.TimestampType):
        return value.isNotNull() & instant(value).isNull()
    if isinstance(kind, t.StructType):
        doubtful = [field for field in kind.fields if not is_read_unchanged(field.dataType)]
        return _any([_misfits(part(value, kind, field.name), field.dataType) for field in doubtful])
    if isinstance(kind, t.ArrayType) and not is_read_unchanged(kind):
        element = kind.elementType
        return f.coalesce(f.exists(value, lambda item: _misfits(item, element)), f.lit(False))
    return f.lit(False)


def _has_new_names(text: Column, kind: StructType) -> Column:
    """Return whether an object, or an object inside it, has a name that its type lacks."""
    names = [field.name for field in kind.fields]
    keys = f.json_object_keys(text)
    # Messages of one producer mostly have the same names in the same order: comparing that is cheap.
    usual = f.array(*map(f.lit, names)) if names else f.array().cast("array<string>")
    tests = [(keys != usual) & f.exists(keys, lambda name: ~name.isin(names) if names else f.lit(True))]
    inside = [field for field in kind.fields if _has_names(field.dataType)]
    if inside:
        texts = t.StructType([t.StructField(field.name, t.StringType()) for field in inside])
        inner = f.from_json(text, texts, _AS_TEXT)
        tests += [_new_names_inside(part(inner, texts, field.name), field.dataType) for field in inside]
    return _any([f.coalesce(one, f.lit(False)) for one in tests])


def _new_names_inside(text: Column, kind: DataType) -> Column:
    if isinstance(kind, t.ArrayType):
        element = kind.elementType
        items = f.from_json(text, t.ArrayType(t.StringType()))
        return f.exists(items, lambda item: f.coalesce(_new_names_inside(item, element), f.lit(False)))
    assert isinstance(kind, t.StructType)  # noqa: S101 - nothing else has names inside
    return _has_new_names(text, kind)


def _has_names(kind: DataType) -> bool:
    if isinstance(kind, t.ArrayType):
        return _has_names(kind.elementType)
    return isinstance(kind, t.StructType) and bool(kind.fields)


def _reason(text: Column, value: Column, columns: StructType, *, is_learning: bool) -> Column:
    """Return why a text could not be read by these columns."""
    begins = _starts_object(text)
    misfits = _misfit_names(text, value, columns)
    misfit = f.concat(f.lit(NOT_LEARNED), misfits) if is_learning else misfits
    return (
        f.when(~_is_single_value(text), "the message is not valid JSON")
        .when(begins == "[", "a JSON array stands where an object belongs")
        .when(begins != "{", "a JSON value stands where an object belongs")
        .otherwise(misfit)
    )


def _misfit_names(text: Column, value: Column, columns: StructType) -> Column:
    """Return an error text with the columns that are NULL although the message has a value for them."""
    fallback = f.lit("a value does not fit its column")
    if not columns.fields:
        return fallback
    nothing = f.array().cast("array<string>")
    texts = t.StructType([t.StructField(field.name, t.StringType()) for field in columns.fields])
    keys = f.json_object_keys(f.to_json(f.from_json(text, texts, _AS_TEXT)))
    lost = f.array_except(f.coalesce(keys, nothing), f.coalesce(f.json_object_keys(f.to_json(value)), nothing))
    doubtful = [field for field in columns.fields if not is_read_unchanged(field.dataType)]
    wide = t.StructType([*columns.fields, _broken_field()])
    wrong = [f.when(_misfits(part(value, wide, field.name), field.dataType), field.name) for field in doubtful]
    names = f.array_union(lost, f.array_compact(f.array(*wrong))) if wrong else lost
    return f.when(f.size(names) > 0, f.concat(fallback, f.lit(": "), f.array_join(names, ", "))).otherwise(fallback)


def _any(conditions: list[Column]) -> Column:
    return reduce(lambda one, other: one | other, conditions, f.lit(False))
