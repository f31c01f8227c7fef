"""The cast of a micro-batch's rows to the types of one table: strict, or with an error column for each row."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import Column, String
from ematix_flow.engine.batch.prepare import Cast, cast_of, prepare_frame
from ematix_flow.sql.spark_text import quote, text_literal
from ematix_flow.streaming.runtime.source_union import ORIGIN_FIELD, source_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WRONG = "_flow_wrong"
_LAST, _TOPIC, _PARTITION, _ORIGIN = "_flow_last", "_flow_topic", "_flow_partition", "_flow_origin"


def fit_rows(rows: DataFrame, table: TableSpec, open_until: ExitStack) -> DataFrame:
    """Return exactly the declared columns; a value that does not fit fails the micro-batch."""
    return prepare_frame(_completed(rows, table), table, (), open_until)


def rows_with_errors(
    rows: DataFrame, table: TableSpec, open_until: ExitStack, *, required: Callable[[str], str] = lambda name: "true"
) -> DataFrame:
    """Return the rows with a column for the error that keeps each from being written; NULL where there is none.

    Normalizers are not tried row by row: they never fail by themselves. `required` returns SQL, by column name, that is
    true where a value is required; a key always is.
    """
    rows = _completed(rows, table)
    types = dict(rows.dtypes)
    tests: list[str] = []
    for column in table.columns:
        if column.normalizers:
            continue
        tests += _tests(column, cast_of(column, types[column.name]), required(column.name))
    wrong = f"CASE {' '.join(tests)} END" if tests else "CAST(NULL AS STRING)"
    return rows.selectExpr("*", f"{wrong} AS {WRONG}")


def last_of_each(rows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """Return the last message of each key: a stream may have several in one micro-batch.

    Within a partition it is the one that was read last, whatever the clocks of its senders show; clocks decide only
    between partitions, where nothing else can.
    """
    from pyspark.sql import functions as f

    place = "struct(_source.offset, length(_source.message_id), _source.message_id)"
    parts = [f.expr("_source.topic").alias(_TOPIC), f.expr("_source.partition").alias(_PARTITION)]
    if ORIGIN_FIELD in source_fields(rows):  # two brokers may have topics of the same name
        parts.append(f.expr(f"_source.{ORIGIN_FIELD}").alias(_ORIGIN))
    whole = f.struct(*map(quote, rows.columns))
    named = [f.col(quote(name)) for name in keys]
    of_parts = rows.groupBy(*named, *parts).agg(f.max_by(whole, f.expr(place)).alias(_LAST))
    order = f.expr(
        f"struct({_LAST}._source.timestamp, {_PARTITION}, {_LAST}._source.offset, {_LAST}._source.message_id)"
    )
    return of_parts.groupBy(*named).agg(f.max_by(_LAST, order).alias(_LAST)).select(f"{_LAST}.*")


def _tests(column: Column, cast: Cast, required: str) -> list[str]:
    name, prefix = quote(column.name), text_literal(f"column {column.name!r}: ")
    tests = []
    if not column.nullable or column.primary_key:
        missing = f"{name} IS NULL" if column.primary_key or required == "true" else f"{name} IS NULL AND {required}"
        tests.append(f"WHEN {missing} THEN {text_literal(f'column {column.name!r} is NULL')}")
    if cast.valid is not None:
        shown = f"left(CAST({name} AS STRING), 80)"
        tests.append(
            f"WHEN {name} IS NOT NULL AND NOT coalesce({cast.valid}, false) "
            f"THEN concat({prefix}, '''', {shown}, '''', {text_literal(f' is not a {column.type}')})"
        )
    if isinstance(column.type, String):
        tests.append(
            f"WHEN length(CAST({name} AS STRING)) > {column.type.length} "
            f"THEN {text_literal(f'column {column.name!r} has more than {column.type.length} characters')}"
        )
    return tests


def _completed(rows: DataFrame, table: TableSpec) -> DataFrame:
    """Add declared columns that the messages never had, as NULL."""
    columns = set(rows.columns)
    missing = [column for column in table.columns if column.name not in columns]
    return rows.selectExpr("*", *(f"NULL AS {quote(column.name)}" for column in missing)) if missing else rows
