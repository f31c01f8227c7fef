"""The connection: `kind` is also the name of the entry point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ematix_flow.declare.connections.base import Connection, FieldRules


@dataclass(frozen=True)
class OutsideConnection(Connection):
    """A database in one file."""

    file: str = ""

    kind: ClassVar[str] = "outside"
    dialect: ClassVar[str] = "duckdb"
    rules: ClassVar[FieldRules] = FieldRules(required=("file",), examples={"file": "data/shop.out"}, paths=("file",))
