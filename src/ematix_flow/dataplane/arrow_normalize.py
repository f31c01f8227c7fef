"""Normalizers on Arrow batches: the same expression trees, rendered for DuckDB and executed in the Spark task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from ematix_flow.contract.lane import Carried
from ematix_flow.dataplane.type_mapping import arrow_schema, column_type
from ematix_flow.declare.normalizers.normalizers import Derive, EmailNormalize, Lower, Sql, Upper
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import Text
from ematix_flow.foundation.drivers import require_driver
from ematix_flow.foundation.lazy_imports import pa
from ematix_flow.sql.expressions import CannotRender, normalized_select, quote, render_chain

# Engines differ on letters like İ and a final Σ: both lanes must give the same values.
_CASES = (Lower, Upper, EmailNormalize)
_GIVEN = "flow_given"
_BATCH_ROWS = 50_000


def normalizing_query(table: TableSpec, input_columns: Carried) -> str | None:
    """Return the query over a task's batches, None without normalizers; raise `CannotRender` if one needs Spark."""
    if not any(column.normalizers for column in table.columns):
        return None
    columns = [(column.name, column.normalizers) for column in table.columns]
    kinds = {name: kind.kind for name, kind in input_columns}
    return normalized_select(columns, f"SELECT * FROM {_GIVEN}", dialect="duckdb", kinds=kinds)


def normalized_columns(table: TableSpec, input_columns: Carried) -> Carried | str:
    """Return the columns after the normalizers, or the reason (a text) why the normalizers must run in Spark."""
    for column in table.columns:
        if any(isinstance(marker, (Sql, Derive)) for marker in column.normalizers):
            return f"the SQL of {column.name} is written for Spark"
        if any(isinstance(marker, _CASES) for marker in column.normalizers):
            return f"Spark changes the case of {column.name}"
    try:
        query = normalizing_query(table, input_columns)
    except CannotRender as exc:
        return str(exc)
    if query is None:
        return input_columns
    try:
        import duckdb
    except ImportError:
        return "normalizers on Arrow need ematix-flow-spark[duckdb]"
    try:
        schema = _described(query, input_columns)
    except duckdb.Error as exc:
        return f"DuckDB does not take the normalizers: {str(exc).splitlines()[0]}"
    declared = dict(input_columns)
    plain = {column.name for column in table.columns if not column.normalizers}
    return tuple(
        (field.name, declared[field.name] if field.name in plain else (column_type(field.type) or Text()))
        for field in schema
    )


def is_exact(markers: Sequence[object]) -> bool:
    """Return whether DuckDB gives the same values as the other engines; False for case changes and user SQL."""
    return not any(isinstance(marker, (Sql, Derive, *_CASES)) for marker in markers)


def column_adding_query(chains: Mapping[str, tuple[str, Sequence[object]]], input_columns: Carried) -> str:
    """Return a query over a task's batches that adds columns: new name to source column and its markers."""
    kinds = {name: kind.kind for name, kind in input_columns}
    added = [
        f"{render_chain(markers, column, dialect='duckdb', column_kind=kinds.get(column))} AS {quote(name, 'duckdb')}"
        for name, (column, markers) in chains.items()
    ]
    return f"SELECT *, {', '.join(added)} FROM {_GIVEN}"


def added_columns(query: str, input_columns: Carried) -> Carried:
    """Return the columns that such a query adds, with their types."""
    require_driver("duckdb", needed_by="a normalizer on Arrow batches", package="duckdb", extra="duckdb")
    existing = {name for name, _ in input_columns}
    return tuple(
        (field.name, (column_type(field.type) or Text()))
        for field in _described(query, input_columns)
        if field.name not in existing
    )


def normalize_batches(batches: Iterator[Any], query: str, input_columns: Carried) -> Iterator[Any]:
    """Yield the normalized batches as they are read."""
    reader = pa.RecordBatchReader.from_batches(arrow_schema(list(input_columns)), batches)
    with closing(_connect()) as session:
        session.register(_GIVEN, reader)
        yield from _reader(session, query, _BATCH_ROWS)


def _described(query: str, input_columns: Carried) -> Any:
    with closing(_connect()) as session:
        session.register(_GIVEN, arrow_schema(list(input_columns)).empty_table())
        return _reader(session, query, 1).schema


def _reader(session: Any, query: str, rows: int) -> Any:
    """Return a reader that streams the result; the method has another name before DuckDB 2."""
    relation = session.sql(query)
    if hasattr(relation, "to_arrow_reader"):
        return relation.to_arrow_reader(rows)
    return relation.fetch_arrow_reader(rows)


def _connect() -> Any:
    import duckdb

    session = duckdb.connect()
    session.execute("SET threads = 1")  # Spark already runs one task per core
    session.execute("SET TimeZone = 'UTC'")
    return session
