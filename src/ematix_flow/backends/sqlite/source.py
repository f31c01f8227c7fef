"""The SQLite source: declared types are checked against stored values, then one task reads Arrow batches by ADBC."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from ematix_flow.backends.sqlite import values
from ematix_flow.backends.sqlite.dialect import SqliteDialect
from ematix_flow.backends.sqlite.errors import translate
from ematix_flow.backends.sqlite.session import connect_source, database_path, require_adbc, source_uri
from ematix_flow.backends.sqlite.storage_classes import BLOB, INTEGER, REAL, TEXT, from_storage, storage_class
from ematix_flow.contract.lane import ArrowParts, Carried
from ematix_flow.contract.read import ReadPlan, SourceColumn
from ematix_flow.dataplane.type_mapping import arrow_schema
from ematix_flow.declare.connections import SQLiteConnection
from ematix_flow.declare.types import BigInt, Bytes, ColumnType, Double, Text
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.source import SqlSource, repeated_columns
from ematix_flow.foundation.errors import BadValue, FlowError, RunFailed
from ematix_flow.foundation.lazy_imports import pa
from ematix_flow.sql.linear_query import without_semicolon

_DIALECT = SqliteDialect()
_VIEW = "flow_source"
_INTEGERS = ("small_int", "integer", "big_int")
_EXACT_IN_DOUBLE = 2**53
_ROWS_PER_BATCH = 16_384
# A typed row before all others: ADBC infers a column's type from the first rows, and those may be NULL.
_FIRST_ROW: dict[str, tuple[str, object]] = {
    INTEGER: ("0", 0),
    REAL: ("0.5", 0.5),
    TEXT: ("'flow'", "flow"),
    BLOB: ("x'f0'", b"\xf0"),
}


@dataclass(frozen=True)
class _ColumnContents:
    """The kinds of values that a column contains."""

    integers: bool
    reals: bool
    texts: bool
    blobs: bool
    wide_integers: bool

    @property
    def is_empty(self) -> bool:
        return not (self.integers or self.reals or self.texts or self.blobs)

    @property
    def only_blobs(self) -> bool:
        return self.blobs and not (self.integers or self.reals or self.texts)


class SqliteSource(SqlSource):
    """A reader of queries on one SQLite connection."""

    dialect = _DIALECT

    def __init__(self, connection: SQLiteConnection) -> None:
        super().__init__(connection)
        database_path(connection)

    def plan(self, query: str, *, parallelism: int) -> ReadPlan:
        """Return columns and row count of the result, from the declared types and one pass over the stored values."""
        query = without_semicolon(query)
        with connect_source(self._connection) as session:
            declared = _describe(session, query)
            rows, types = _examine(session, declared)
        columns = tuple(
            SourceColumn(name, native or "(no type)", kind)
            for (name, native), kind in zip(declared, types, strict=True)
        )
        return ReadPlan(query, columns, 1, "SQLite is read by one task", rows, True)

    def since(self, query: str, column: SourceColumn, value: str) -> str | None:
        """Return the query restricted to rows from a watermark on; values are compared in their canonical form."""
        if column.type is None:
            return None
        name = _DIALECT.quote(column.name)
        stored = values.canonical(name, column.type) if storage_class(column.type) == TEXT else name
        if column.type.kind == "numeric":  # text does not sort like numbers; rounding keeps the order
            stored, literal = f"CAST({stored} AS REAL)", f"CAST({_DIALECT.text_literal(value)} AS REAL)"
        else:
            literal = _DIALECT.watermark_literal(value, column.type)
        return f"SELECT * FROM (\n{without_semicolon(query)}\n) AS q WHERE {stored} >= {literal} OR {name} IS NULL"

    def arrow_parts(self, plan: ReadPlan, open_until: ExitStack) -> ArrowParts:
        """Return the single part of the read."""
        require_adbc()
        carried = self.arrow_columns(plan)
        query = _transport(plan.query, carried)
        return ArrowParts(1, carried, _reader(source_uri(self._connection), query, carried), _translate)


def _describe(session: SqlSession, query: str) -> list[tuple[str, str]]:
    session.execute("PRAGMA query_only = OFF")  # creating a temporary view counts as a write
    session.execute(f"CREATE TEMP VIEW {_VIEW} AS {query}")
    session.execute("PRAGMA query_only = ON")
    described = [(str(row[1]), str(row[2] or "")) for row in session.rows(f"PRAGMA temp.table_info({_VIEW})")]
    names = {name for name, _ in described}
    twice = sorted({match[1] for name in names if (match := re.match(r"(.+):\d+$", name)) and match[1] in names})
    if twice:
        raise repeated_columns(twice)
    return described


def _examine(session: SqlSession, declared: list[tuple[str, str]]) -> tuple[int, list[ColumnType]]:
    """Count the rows, and determine the type of each column.

    A column whose values are all of its declared type takes one test per value; the others are read once more.
    """
    types = [_DIALECT.parse_type(native) for _, native in declared]
    names = [_DIALECT.quote(name) for name, _ in declared]
    suspects = [_mismatched_type(name, kind) if kind else "1" for name, kind in zip(names, types, strict=True)]
    total, *suspected = session.rows(f"SELECT COUNT(*), {', '.join(suspects)} FROM temp.{_VIEW}")[0]
    unclear = [index for index, contents in enumerate(suspected) if contents or types[index] is None]
    contents = dict(zip(unclear, _storage_classes(session, [names[index] for index in unclear]), strict=True))
    return int(total), [
        _type_of(name, types[index], contents[index]) if index in contents else types[index] or Text()
        for index, (name, _) in enumerate(declared)
    ]


def _mismatched_type(name: str, declared: ColumnType) -> str:
    return f"MAX({name} IS NOT NULL AND NOT {values.fits(name, declared)})"


def _storage_classes(session: SqlSession, names: list[str]) -> list[_ColumnContents]:
    """Return the storage classes that each of these columns contains."""
    if not names:
        return []
    tests = [test for name in names for test in _tests(name)]
    answers = session.rows(f"SELECT {', '.join(tests)} FROM temp.{_VIEW}")[0]
    width = len(tests) // len(names)
    return [_ColumnContents(*(bool(item) for item in answers[at : at + width])) for at in range(0, len(answers), width)]


def _tests(name: str) -> list[str]:
    classes = [f"MAX(typeof({name}) = '{storage}')" for storage in (INTEGER, REAL, TEXT, BLOB)]
    return [*classes, f"MAX(typeof({name}) = 'integer' AND abs({name} / 2) > {_EXACT_IN_DOUBLE // 2})"]


def _type_of(name: str, declared: ColumnType | None, contents: _ColumnContents) -> ColumnType:
    """Return the narrowest lossless type, for a column without a declared type or with values of other types."""
    if contents.is_empty:
        return Text()
    if contents.only_blobs:
        return Bytes()
    if contents.blobs:
        raise BadValue(
            f"column {name!r} holds binary values beside others",
            hint=f"say which is meant: CAST({name} AS BLOB) or AS TEXT",
        )
    if not contents.reals and not contents.texts and (declared is None or declared.kind in _INTEGERS):
        return BigInt()
    if declared is None and not contents.texts and not contents.wide_integers:
        return Double()
    return Text()


def _transport(query: str, carried: Carried) -> str:
    first = ", ".join(f"{_FIRST_ROW[storage_class(kind)][0]} AS c{index}" for index, (_, kind) in enumerate(carried))
    rest = ", ".join(_expression(_DIALECT.quote(name), kind) for name, kind in carried)
    return f"SELECT {first} UNION ALL SELECT {rest} FROM (\n{query}\n) AS q"


def _expression(name: str, column_type: ColumnType) -> str:
    """Return SQL of the canonical value; a value of another class, written after planning, fails the read."""
    if column_type.kind in ("text", "string"):
        return f"CASE typeof({name}) WHEN 'text' THEN {name} WHEN 'blob' THEN {_mismatch(name)} ELSE {values.as_text(name)} END"
    value = f"coalesce({values.canonical(name, column_type)}, {_mismatch(name)})"
    storable = values.is_storable(name, column_type)
    return f"CASE WHEN {name} IS NULL THEN NULL WHEN {storable} THEN {value} ELSE {_mismatch(name)} END"


def _mismatch(name: str) -> str:
    return values.MISMATCH.format(value=name)


def _translate(exc: Exception) -> FlowError:
    if isinstance(exc, pa.ArrowInvalid):
        return BadValue(
            f"{exc} (SQLite)", hint="the source changed while it was planned, or holds a value of another type"
        )
    return translate(exc)


def _reader(uri: str, query: str, carried: Carried) -> Any:
    def read(_: int) -> Iterator[Any]:
        import adbc_driver_sqlite.dbapi as adbc

        schema = arrow_schema(list(carried))
        with adbc.connect(uri) as session, session.cursor() as cursor:
            cursor.execute("PRAGMA query_only = ON")
            cursor.execute("PRAGMA busy_timeout = 10000")
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_ROWS_PER_BATCH)})
            cursor.execute(query)
            is_first = True
            for batch in cursor.fetch_record_batch():
                rows = _without_first_row(batch, carried) if is_first else batch
                is_first = False
                arrays = [from_storage(rows.column(index), kind) for index, (_, kind) in enumerate(carried)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return read


def _without_first_row(batch: Any, carried: Carried) -> Any:
    first = [column[0].as_py() for column in batch.columns]
    if first != [_FIRST_ROW[storage_class(kind)][1] for _, kind in carried]:
        raise RunFailed("SQLite gave the rows of a UNION ALL in another order than they were asked for")
    return batch.slice(1)
