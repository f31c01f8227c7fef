"""Transports rows from the server into a Spark task, as Arrow batches of exactly the planned types."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from ematix_flow.backends.mysql.session import SETTINGS, MySqlLogin, open_connection
from ematix_flow.contract.lane import Carried
from ematix_flow.dataplane.type_mapping import arrow_schema
from ematix_flow.foundation.errors import BadValue
from ematix_flow.foundation.lazy_imports import pa, pc

BATCH_ROWS = 20_000


def reader(data: MySqlLogin, queries: list[str], carried: Carried) -> Any:
    """Return the function that a task runs: it reads the rows of the query with the given number."""

    def read(number: int) -> Iterator[Any]:
        fetch = _fetch_encrypted if data.encrypted else _fetch
        schema = arrow_schema(list(carried))
        for batch in fetch(data, queries[number]):
            yield _to_schema(batch, schema)

    return read


def _fetch(data: MySqlLogin, query: str) -> Iterator[Any]:
    for name, value in (("RUST_LOG", "off"), ("RUST_BACKTRACE", "0")):
        os.environ.setdefault(name, value)
    import connectorx

    try:
        yield from connectorx.read_sql(
            data.url, query, return_type="arrow_stream", batch_size=BATCH_ROWS, pre_execution_query=list(SETTINGS)
        )
    except BaseException as exc:
        if type(exc).__name__ != "PanicException":  # connectorx raises this when the server breaks the connection
            raise
        raise RuntimeError(str(exc)) from None


def _fetch_encrypted(data: MySqlLogin, query: str) -> Iterator[Any]:
    """Yield the rows by PyMySQL, because connectorx has no TLS; it is slower, and returns every value as text."""
    from pymysql.cursors import SSCursor

    with closing(open_connection(data, conv={}, cursorclass=SSCursor)) as raw, raw.cursor() as cursor:
        cursor.execute(query)
        names = [item[0] for item in cursor.description]
        while rows := cursor.fetchmany(BATCH_ROWS):
            yield pa.RecordBatch.from_arrays([pa.array(column) for column in zip(*rows, strict=True)], names=names)


def _to_schema(batch: Any, schema: Any) -> Any:
    columns = []
    for index, field in enumerate(schema):
        try:
            columns.append(_converted(batch.column(index), field.type))
        except pa.ArrowInvalid as exc:
            raise BadValue(
                f"{field.name} has a value that cannot leave MySQL: {exc}",
                hint=f"cast it in the query, for example NULLIF(`{field.name}`, …) for zero dates or CAST(… AS SIGNED)",
            ) from exc
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _converted(column: Any, wanted: Any) -> Any:
    if column.type == wanted:
        return column
    if pa.types.is_decimal(wanted):  # a direct cast of text with too many digits would silently wrap around
        return column.cast(pa.decimal256(76, wanted.scale)).cast(wanted)
    if pa.types.is_timestamp(wanted):
        return column.cast(pa.timestamp("us")).cast(wanted)
    if pa.types.is_boolean(wanted):
        number = column.cast(pa.int64())
        if pc.any(pc.invert(pc.is_in(number, pa.array([0, 1, None], pa.int64())))).as_py():
            raise pa.ArrowInvalid("a tinyint(1) or bit(1) that is neither 0 nor 1")
        return number.cast(wanted)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), wanted)
    return column.cast(wanted)
