"""Join keys whose types may differ between the sides: text on one side is cast to the type of the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.sql.spark_text import quote

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_MOST_DIGITS = 38


@dataclass(frozen=True)
class JoinKeys:
    """The keys of one side, as SQL with their types."""

    columns: Sequence[tuple[str, DataType]]

    @classmethod
    def of(cls, row: str, kind: Any, names: Sequence[str]) -> JoinKeys | None:
        """Return the keys from fields of a row; None as long as no row had them."""
        fields_by_name = {field.name.lower(): field for field in kind.fields}
        fields = [fields_by_name.get(name.lower()) for name in names]
        if None in fields:
            return None
        return cls([(f"{row}.{quote(field.name)}", field.dataType) for field in fields if field is not None])

    def equal(self, other: JoinKeys) -> str:
        """Return SQL for whether all are equal; NULL is equal to nothing."""
        both = zip(self.columns, other.columns, strict=True)
        return " AND ".join(_equal(*one, *another) for one, another in both)


def _equal(one: str, kind: DataType, other: str, other_kind: DataType) -> str:
    from pyspark.sql.types import StringType

    if isinstance(kind, StringType) == isinstance(other_kind, StringType):
        return f"{one} = {other}"  # Spark finds a common type for numbers, and for dates and moments
    if isinstance(kind, StringType):
        return f"{_parsed_key(one, other_kind)} = {other}"
    return f"{one} = {_parsed_key(other, kind)}"


def _parsed_key(text: str, kind: DataType) -> str:
    """Return SQL for a text cast to the type that it is compared with; NULL, equal to nothing, where it cannot be."""
    from pyspark.sql.types import DecimalType

    if isinstance(kind, DecimalType):  # with all digits that it may have: 1.004 is not 1.00
        return f"try_cast({text} AS DECIMAL({_MOST_DIGITS}, {_MOST_DIGITS - (kind.precision - kind.scale)}))"
    return f"try_cast({text} AS {kind.simpleString()})"
