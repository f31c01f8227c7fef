"""Keys of two sides that need not have the same types: what is text on one side is read as what it is on the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.families.lake.session import quote

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_MOST_DIGITS = 38


@dataclass(frozen=True)
class Keys:
    """The keys of one side, as SQL with their types."""

    columns: Sequence[tuple[str, DataType]]

    @classmethod
    def of(cls, row: str, kind: Any, names: Sequence[str]) -> Keys | None:
        """Fields of a row; None as long as no row had them."""
        there = {field.name.lower(): field for field in kind.fields}
        found = [there.get(name.lower()) for name in names]
        if None in found:
            return None
        return cls([(f"{row}.{quote(field.name)}", field.dataType) for field in found if field is not None])

    def equal(self, other: Keys) -> str:
        """Whether all are equal; NULL is equal to nothing."""
        both = zip(self.columns, other.columns, strict=True)
        return " AND ".join(_equal(*one, *another) for one, another in both)


def _equal(one: str, kind: DataType, other: str, other_kind: DataType) -> str:
    from pyspark.sql.types import StringType

    if isinstance(kind, StringType) == isinstance(other_kind, StringType):
        return f"{one} = {other}"  # of numbers, and of dates and moments, Spark knows what holds both
    if isinstance(kind, StringType):
        return f"{_read(one, other_kind)} = {other}"
    return f"{one} = {_read(other, kind)}"


def _read(text: str, kind: DataType) -> str:
    """A text as what it is compared with; NULL where it is none, because it can be equal to none then."""
    from pyspark.sql.types import DecimalType

    if isinstance(kind, DecimalType):  # with all digits that it may have: 1.004 is not 1.00
        return f"try_cast({text} AS DECIMAL({_MOST_DIGITS}, {_MOST_DIGITS - (kind.precision - kind.scale)}))"
    return f"try_cast({text} AS {kind.simpleString()})"
