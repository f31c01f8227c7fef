"""A read: the query, its result columns, and its splits."""

from __future__ import annotations

from dataclasses import dataclass, field

from ematix_flow.declare.types import ColumnType


@dataclass(frozen=True)
class SourceColumn:
    """A column of a query's result; `type` is the nearest declared type, None when there is none."""

    name: str
    native: str
    type: ColumnType | None
    nullable: bool = True


@dataclass(frozen=True)
class ReadPlan:
    """The plan for reading a query."""

    query: str
    columns: tuple[SourceColumn, ...]
    splits: int = 1
    split_reason: str = ""
    estimated_rows: int | None = None
    consistent: bool = True
    joins: tuple[str, ...] = field(default=(), kw_only=True)
    """The join order chosen for the query, with its reason; empty where the joins keep their written order."""
