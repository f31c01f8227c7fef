"""Column types and columns as the user declares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ematix_flow.foundation.errors import DeclarationError


class ColumnType:
    """A type of a table's column; types are equal if their specifications are."""

    kind: ClassVar[str] = ""

    def to_spec(self) -> dict[str, Any]:
        """Return the type as plain data, `{"kind": "big_int"}`."""
        return {"kind": self.kind}

    def __or__(self, other: object) -> NullableType:
        if other is None or other is type(None):
            return NullableType(self)
        return NotImplemented

    __ror__ = __or__

    def __call__(self) -> ColumnType:
        # typing.Annotated on Python 3.10 accepts only callables as its first argument.
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ColumnType) and self.to_spec() == other.to_spec()

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.to_spec().items())))

    def __repr__(self) -> str:
        return type(self).__name__

    def __str__(self) -> str:
        return repr(self)


@dataclass(frozen=True)
class NullableType:
    """A type that also takes NULL: `String[256] | None`."""

    type: ColumnType

    def __call__(self) -> NullableType:
        return self


class SmallInt(ColumnType):
    """16-bit integer."""

    kind = "small_int"


class Integer(ColumnType):
    """32-bit integer."""

    kind = "integer"


class BigInt(ColumnType):
    """64-bit integer."""

    kind = "big_int"


class Float(ColumnType):
    """32-bit floating point."""

    kind = "float"


class Double(ColumnType):
    """64-bit floating point."""

    kind = "double"


class Boolean(ColumnType):
    """True or false."""

    kind = "boolean"


class Text(ColumnType):
    """Text of any length."""

    kind = "text"


class Date(ColumnType):
    """A calendar date."""

    kind = "date"


class Timestamp(ColumnType):
    """Date and time without a time zone."""

    kind = "timestamp"


class TimestampTZ(ColumnType):
    """An instant."""

    kind = "timestamp_tz"


class JSON(ColumnType):
    """A JSON document, stored as it was written."""

    kind = "json"


class JSONB(ColumnType):
    """A JSON document, stored as parsed values."""

    kind = "jsonb"


class UUID(ColumnType):
    """A UUID."""

    kind = "uuid"


class Bytes(ColumnType):
    """Binary data."""

    kind = "bytes"


class String(ColumnType):
    """Text of at most `length` characters: `String[256]`."""

    kind = "string"

    def __init__(self, length: int) -> None:
        if not isinstance(length, int) or isinstance(length, bool) or length <= 0:
            raise DeclarationError(f"String needs a positive length, not {length!r}", hint="write String[256]")
        self.length = length

    def __class_getitem__(cls, length: int) -> String:
        return cls(length)

    def to_spec(self) -> dict[str, Any]:
        """Return kind and length as plain data."""
        return {"kind": self.kind, "length": self.length}

    def __repr__(self) -> str:
        return f"String[{self.length}]"


class Numeric(ColumnType):
    """An exact decimal number: `Numeric[12, 2]`."""

    kind = "numeric"

    def __init__(self, precision: int, scale: int) -> None:
        if not (0 < precision <= 38 and 0 <= scale <= precision):
            raise DeclarationError(
                f"Numeric[{precision}, {scale}] needs 1 ≤ precision ≤ 38 and 0 ≤ scale ≤ precision",
                hint="write Numeric[12, 2]",
            )
        self.precision = precision
        self.scale = scale

    def __class_getitem__(cls, item: tuple[int, int]) -> Numeric:
        if not isinstance(item, tuple) or len(item) != 2:
            raise TypeError("Numeric takes two numbers: Numeric[12, 2]")
        return cls(*item)

    def to_spec(self) -> dict[str, Any]:
        """Return kind, precision and scale as plain data."""
        return {"kind": self.kind, "precision": self.precision, "scale": self.scale}

    def __repr__(self) -> str:
        return f"Numeric[{self.precision}, {self.scale}]"


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    type: ColumnType
    nullable: bool = True
    primary_key: bool = False
    name: str = ""
    normalizers: tuple[Any, ...] = ()

    def to_spec(self) -> dict[str, Any]:
        """Return the column as plain data."""
        return {
            "name": self.name,
            "type": self.type.to_spec(),
            "nullable": self.nullable,
            "primary_key": self.primary_key,
        }


PLAIN_TYPES: tuple[type[ColumnType], ...] = (
    SmallInt, Integer, BigInt, Float, Double, Boolean, Text, Date, Timestamp, TimestampTZ, JSON, JSONB, UUID, Bytes,
)  # fmt: skip
PLAIN_BY_KIND: dict[str, ColumnType] = {plain.kind: plain() for plain in PLAIN_TYPES}


def type_from_spec(spec: Mapping[str, Any]) -> ColumnType | None:
    """Return the type of a `ColumnType.to_spec()`, None for an unknown kind."""
    kind = spec.get("kind")
    if kind == String.kind:
        return String(int(spec["length"]))
    if kind == Numeric.kind:
        return Numeric(int(spec["precision"]), int(spec["scale"]))
    return PLAIN_BY_KIND.get(str(kind))
