"""Tables from the plain data that `_to_spec()` returns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ematix_flow.declare.table import ManagedTable, TableError, TableSpec
from ematix_flow.declare.types import PLAIN_BY_KIND, Column, ColumnType, type_from_spec
from ematix_flow.foundation.names import did_you_mean


def table_from(table: TableSpec | type[ManagedTable] | Mapping[str, Any] | str) -> TableSpec:
    """Return a table from its class, its frozen value, its plain data or that data as JSON.

    >>> table_from({"schema": "raw", "name": "ids", "columns": [{"name": "id", "type": {"kind": "big_int"}}]}).columns
    (Column(type=BigInt, nullable=True, primary_key=False, name='id', normalizers=()),)
    """
    if isinstance(table, TableSpec):
        return table
    if isinstance(table, type) and issubclass(table, ManagedTable):
        return table.spec()
    if isinstance(table, str):
        try:
            table = json.loads(table)
        except ValueError as exc:
            raise TableError(f"the table is no JSON: {exc}", hint="json.dumps(Table._to_spec()) makes it") from exc
    if not isinstance(table, Mapping):
        raise TableError(f"{table!r} is not a table", hint="pass a ManagedTable class or what its _to_spec() returns")
    return _read(table)


def _read(data: Mapping[str, Any]) -> TableSpec:
    for key in ("schema", "name", "columns"):
        if not data.get(key):
            raise TableError(f"the table's data has no {key!r}", hint="compare it with Table._to_spec()")
    return TableSpec(
        schema=str(data["schema"]),
        name=str(data["name"]),
        columns=tuple(_column(column) for column in data["columns"]),
        unique=tuple(tuple(map(str, group)) for group in data.get("unique_constraints") or ()),
    )


def _column(data: Mapping[str, Any]) -> Column:
    name = str(data.get("name", ""))
    return Column(
        type=_type(name, data.get("type") or {}),
        nullable=bool(data.get("nullable", True)),
        primary_key=bool(data.get("primary_key", False)),
        name=name,
    )


def _type(column: str, data: Mapping[str, Any]) -> ColumnType:
    known, kind = type_from_spec(data), str(data.get("kind", ""))
    if known is None:
        near = did_you_mean(kind, PLAIN_BY_KIND)
        raise TableError(f"column {column!r} is of kind {kind!r}, which is not known", hint=near)
    return known
