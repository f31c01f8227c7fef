"""Markers inside `Annotated[...]` that give a column its role."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PrimaryKey:
    """Marks a column of the primary key."""

    options: tuple[tuple[str, Any], ...] = field(default=(), compare=False)

    def __repr__(self) -> str:
        return "pk()"

    def __or__(self, other: object) -> PrimaryKey:
        return self


@dataclass(frozen=True)
class NaturalKey:
    """Marks a column of a business key; columns of one group belong together."""

    group: str = ""

    def __repr__(self) -> str:
        return f"natural_key({self.group!r})" if self.group else "natural_key()"


@dataclass(frozen=True)
class Nullable:
    """Marks a column that takes NULL."""

    def __repr__(self) -> str:
        return "nullable()"


def pk(**options: Any) -> PrimaryKey:
    """Mark the column as part of the primary key: `Annotated[BigInt, pk()]`."""
    return PrimaryKey(tuple(sorted(options.items())))


def natural_key(group: str = "") -> NaturalKey:
    """Mark the column as part of a unique business key; merge and scd2 use the first group unless keys are given."""
    return NaturalKey(group)


def nullable() -> Nullable:
    """Mark the column as nullable, the same as `T | None`."""
    return Nullable()
