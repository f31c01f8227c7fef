"""Connections and tables below the declarations, under the names that older code imports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ematix_flow._version import __version__
from ematix_flow.declare.table import ManagedTable, TableSpec
from ematix_flow.declare.table_data import as_table
from ematix_flow.live import Connection, same_database
from ematix_flow.live import connect as _connect

__all__ = ["Connection", "connect", "core_version", "create_table_sql", "same_database"]


def connect(url: str) -> Connection:
    """A connection by its url; a server is asked at once whether it answers."""
    opened = _connect(url=url)
    if opened.backend.client is not None:
        opened.ping()
    return opened


def core_version() -> str:
    """The version of this package."""
    return __version__


def create_table_sql(spec: TableSpec | type[ManagedTable] | Mapping[str, Any] | str) -> str:
    """The CREATE TABLE statement of a declared table for PostgreSQL."""
    from ematix_flow.backends.postgres.dialect import PostgresDialect

    table, dialect = as_table(spec), PostgresDialect()
    relation = dialect.relation(table.schema, table.name)
    return dialect.create_table(relation, table.columns, primary_key=table.primary_key, unique=table.unique)
