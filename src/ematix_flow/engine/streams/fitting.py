"""The cast of a micro-batch's rows to the types of one table: strict, or with an error column for each row."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import Column, String
from ematix_flow.engine.prepare import Cast, cast_of, prepare
from ematix_flow.engine.streams.unions import ORIGIN, source_fields
from ematix_flow.families.lake.session import quote, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WRONG = "_flow_wrong"
_LAST, _TOPIC, _PARTITION, _ORIGIN = "_flow_last", "_flow_topic", "_flow_partition", "_flow_origin"


def fitted(rows: DataFrame, table: TableSpec, open_until: ExitStack) -> DataFrame:
    """Return exactly the declared columns; a value that does not fit fails the micro-batch."""
    return prepare(_completed(rows, table), table, (), open_until)


def judged(
    rows: DataFrame, table: TableSpec, open_until: ExitStack, *, told: Callable[[str], str] = lambda name: "true"
) -> DataFrame:
    """Return the rows with a column for the error that keeps each from being written; NULL where there is none.

    Normalizers are not tried row by row: they never fail by themselves. `told` returns SQL, by column name, that is
    true where a value is required; a key always is.
    """
    rows = _completed(rows, table)
    given = dict(rows.dtypes)
    tests: list[str] = []
    for column in table.columns:
        if column.normalizers:
            continue
        tests += _tests(column, cast_of(column, given[column.name]), told(column.name))
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
    if ORIGIN in source_fields(rows):  # two brokers may have topics of the same name
        parts.append(f.expr(f"_source.{ORIGIN}").alias(_ORIGIN))
    whole = f.struct(*map(quote, rows.columns))
    named = [f.col(quote(name)) for name in keys]
    of_parts = rows.groupBy(*named, *parts).agg(f.max_by(whole, f.expr(place)).alias(_LAST))
    order = f.expr(
        f"struct({_LAST}._source.timestamp, {_PARTITION}, {_LAST}._source.offset, {_LAST}._source.message_id)"
    )
    return of_parts.groupBy(*named).agg(f.max_by(_LAST, order).alias(_LAST)).select(f"{_LAST}.*")


def _tests(column: Column, cast: Cast, told: str) -> list[str]:
    name, said = quote(column.name), text(f"column {column.name!r}: ")
    made = []
    if not column.nullable or column.primary_key:
        missing = f"{name} IS NULL" if column.primary_key or told == "true" else f"{name} IS NULL AND {told}"
        made.append(f"WHEN {missing} THEN {text(f'column {column.name!r} is NULL')}")
    if cast.valid is not None:
        shown = f"left(CAST({name} AS STRING), 80)"
        made.append(
            f"WHEN {name} IS NOT NULL AND NOT coalesce({cast.valid}, false) "
            f"THEN concat({said}, '''', {shown}, '''', {text(f' is not a {column.type}')})"
        )
    if isinstance(column.type, String):
        made.append(
            f"WHEN length(CAST({name} AS STRING)) > {column.type.length} "
            f"THEN {text(f'column {column.name!r} has more than {column.type.length} characters')}"
        )
    return made


def _completed(rows: DataFrame, table: TableSpec) -> DataFrame:
    """Add declared columns that the messages never had, as NULL."""
    there = set(rows.columns)
    missing = [column for column in table.columns if column.name not in there]
    return rows.selectExpr("*", *(f"NULL AS {quote(column.name)}" for column in missing)) if missing else rows
