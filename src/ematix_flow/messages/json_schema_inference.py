"""Schema inference for JSON texts: the merged type of Spark's variants, mapped to this product's types.

Whole numbers are BIGINT, others DOUBLE; whole numbers beyond BIGINT stay text, because DOUBLE would change them. Text
is TIMESTAMP where every value is an ISO 8601 instant. A field that was never anything but null, `{}` or `[]` has a type
without values (VOID, an empty struct); it becomes a column when it gets its first value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from ematix_flow.foundation.lazy_imports import f, t
from ematix_flow.messages.json_types import part
from ematix_flow.messages.type_widening import ITEM, MOST_FIELDS, MOST_LEVELS, Path

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

INSTANT = r"^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d(:?\d\d)?)?$"
_HUGE = r"^-?\d{19,}$"
_NOT_A_NUMBER = r"(?<=[:\[,])\s*(?:NaN|-?Infinity)\s*(?=[,\]}])"
_TOKEN = re.compile(r"`((?:[^`]|``)*)`|([^\s`<>,:()]+)(\(\d+,\s*\d+\))?")

Leaves = dict[Path, "DataType"]


def learned_type(texts: DataFrame, text: Column, *, read: Callable[[Column, StructType], Column]) -> StructType | None:
    """Return the type of all objects among these texts; None where there is none. `read` parses a text by a type."""
    # Python writes NaN and Infinity, which JSON lacks; for inference, any fraction can stand in for them.
    plain = f.regexp_replace(text, _NOT_A_NUMBER, "0.5")
    parsed = f.when(f.substring(f.ltrim(text), 1, 1) == "{", f.try_parse_json(plain))
    facts = texts.select(
        f.schema_of_variant_agg(parsed).alias("merged"),
        f.first(f.when(parsed.isNotNull(), f.json_object_keys(text)), ignorenulls=True).alias("order"),
    ).first()
    merged = parsed_type(facts["merged"]) if facts is not None and facts["merged"] else None
    if not isinstance(merged, t.StructType):
        return None
    doubtful = {path: kind for path, kind in leaves(merged) if isinstance(kind, (t.StringType, t.DecimalType))}
    counterexamples = _counterexamples(texts, text, merged, doubtful, read=read)
    settled = _settled_type(
        merged, {path: _type_verdict(kind, path in counterexamples) for path, kind in doubtful.items()}
    )
    assert isinstance(settled, t.StructType)  # noqa: S101 - a struct stays one
    place = {name: number for number, name in enumerate(facts["order"] or ())} if facts is not None else {}
    return t.StructType(sorted(settled.fields, key=lambda field: place.get(field.name, len(place))))


def instant(text: Column) -> Column:
    """Return the instant in a text such as `2026-01-31T12:00:00Z`, UTC unless it names a zone; NULL for any other text.

    The dashes of a full date are checked because Spark also accepts `2026`, `12:30` (of the current day) and more.
    """
    is_dated = (f.substring(text, 5, 1) == "-") & (f.substring(text, 8, 1) == "-")
    return f.when(is_dated, text.try_cast("timestamp"))


def leaves(kind: DataType, path: Path = ()) -> Iterator[tuple[Path, DataType]]:
    """Yield each leaf of a nested type, with its path."""
    if isinstance(kind, t.StructType):
        for field in kind.fields:
            yield from leaves(field.dataType, (*path, field.name))
    elif isinstance(kind, t.ArrayType):
        yield from leaves(kind.elementType, (*path, ITEM))
    else:
        yield path, kind


def _type_verdict(kind: DataType, has_counterexample: bool) -> DataType:
    if isinstance(kind, t.DecimalType):
        return t.StringType() if has_counterexample else t.DoubleType()
    return t.StringType() if has_counterexample else t.TimestampType()


def _counterexamples(
    texts: DataFrame,
    text: Column,
    merged: StructType,
    doubtful: Mapping[Path, DataType],
    *,
    read: Callable[[Column, StructType], Column],
) -> set[Path]:
    """Return the paths with a text that is no instant, or with a whole number beyond BIGINT."""
    if not doubtful:
        return set()
    as_text = _settled_type(merged, dict.fromkeys(doubtful, t.StringType()))
    assert isinstance(as_text, t.StructType)  # noqa: S101 - a struct stays one
    value = read(text, as_text)
    questions = {path: _exists(value, as_text, path, _speaks_against(kind)) for path, kind in doubtful.items()}
    names = {f"c{number}": path for number, path in enumerate(questions)}
    row = texts.select(
        *(f.bool_or(f.coalesce(questions[path], f.lit(False))).alias(name) for name, path in names.items())
    ).first()
    return {path for name, path in names.items() if row is not None and row[name]}


def _speaks_against(kind: DataType) -> Callable[[Column], Column]:
    if isinstance(kind, t.DecimalType):
        return lambda text: text.rlike(_HUGE) & text.try_cast("bigint").isNull()
    return lambda text: text.isNotNull() & ~(text.rlike(INSTANT) & instant(text).isNotNull())


def _exists(value: Column, kind: DataType, path: Path, condition: Callable[[Column], Column]) -> Column:
    if isinstance(kind, t.ArrayType) and path:
        element = kind.elementType
        return f.exists(value, lambda item: f.coalesce(_exists(item, element, path[1:], condition), f.lit(False)))
    if isinstance(kind, t.StructType) and path:
        return _exists(part(value, kind, path[0]), kind[path[0]].dataType, path[1:], condition)
    return condition(value)


def _settled_type(kind: DataType, verdicts: Leaves, path: Path = ()) -> DataType:
    if isinstance(kind, t.StructType):
        fields = [(field.name, _settled_type(field.dataType, verdicts, (*path, field.name))) for field in kind.fields]
        return t.StructType([t.StructField(name, inner) for name, inner in fields])
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(_settled_type(kind.elementType, verdicts, (*path, ITEM)))
    return verdicts.get(path, kind)


def parsed_type(text: str) -> DataType:
    """Return the type in the text of `schema_of_variant_agg`, such as `OBJECT<a: BIGINT, b: ARRAY<STRING>>`."""
    return _TypeParser(text).one(level=0)


class _TypeParser:
    """A parser of such a text, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def one(self, *, level: int) -> DataType:
        word = self._name()
        if word == "OBJECT":
            return self._object(level=level + 1)
        if word == "ARRAY":
            self._skip("<")
            element = self.one(level=level + 1)
            self._skip(">")
            return t.StringType() if level >= MOST_LEVELS else t.ArrayType(element)
        decimal = re.fullmatch(r"DECIMAL\((\d+),\s*(-?\d+)\)", word)
        if decimal is not None:
            # Up to 18 digits a whole number is BIGINT, so such a decimal has a fraction. Longer ones are checked again.
            precision, scale = int(decimal[1]), int(decimal[2])
            return t.DecimalType(38, 0) if scale == 0 and precision > 18 else t.DoubleType()
        kinds = {"VOID": t.NullType, "BOOLEAN": t.BooleanType, "BIGINT": t.LongType, "DOUBLE": t.DoubleType}
        return kinds.get(word, t.StringType)()

    def _object(self, *, level: int) -> DataType:
        fields = []
        self._skip("<")
        while not self._text.startswith(">", self._at):
            name = self._name()
            self._skip(":")
            fields.append(t.StructField(name, self.one(level=level)))
            self._skip(",")
        self._skip(">")
        is_dictionary = level > 1 and len(fields) > MOST_FIELDS
        return t.StringType() if is_dictionary or level > MOST_LEVELS else t.StructType(fields)

    def _name(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise ValueError(f"no type at {self._at} of {self._text[:200]!r}")
        self._at = match.end()
        return match[1].replace("``", "`") if match[1] is not None else match[2] + (match[3] or "")

    def _skip(self, mark: str) -> None:
        if self._text.startswith(mark, self._at):
            self._at += len(mark)
        while self._text.startswith(" ", self._at):
            self._at += 1
