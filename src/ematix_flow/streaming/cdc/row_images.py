"""Row images of changes for one table: its keys, its columns as messages wrote them, the last change of each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ematix_flow.contract.cdc import (
    DELETE,
    EVENT_MS,
    EVENTS,
    KEPT,
    KEY,
    LONGEST_KEY,
    OPERATION,
    POSITION,
    READ,
    UPDATE,
    origin_sql,
)
from ematix_flow.dataplane.type_mapping import JSON_AS_IT_IS
from ematix_flow.declare.strategy import Changes
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import Column
from ematix_flow.engine.batch.prepare import strict_cast
from ematix_flow.sql.spark_text import quote, text_literal
from ematix_flow.streaming.cdc.values import IS_UNAVAILABLE, convert_value, deleted_at

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

CHANGE = "_flow_change"
"""The column with the change, beside the row: STRUCT<op, ms, position, kinds, before, key, scalar, row_text>."""
UNAVAILABLE_COLUMNS = "flow_unavailable"
"""The metadata of CHANGE and of KEPT: the columns whose value some message leaves out."""
IS_DELETE = f"{OPERATION} = '{DELETE}'"
_OLD, _LAST, _READ, _IMAGE, _ORIGIN, _FILL = (
    "_flow_old", "_flow_last", "_flow_read", "_flow_image", "_flow_origin", "_flow_fill",
)  # fmt: skip
_MESSAGE = ("_raw", "_source")


def rows_of_table(rows: DataFrame, table: TableSpec, strategy: Changes) -> DataFrame:
    """Return the changes with the columns of one table as texts, and the staged columns beside them.

    An update whose key differs from the key before is two changes: the row of the old key is deleted.
    """
    from pyspark.sql import functions as f

    columns = set(rows.columns)
    moved = " OR ".join(f"({_value_before(key)} <> {_key(key, strategy, columns)})" for key in strategy.keys)
    moved = f"coalesce({CHANGE}.op <> '{DELETE}' AND ({moved}), false)"
    twice = rows.selectExpr("*", f"explode(CASE WHEN {moved} THEN array(true, false) ELSE array(false) END) AS {_OLD}")
    goes = f"({_OLD} OR {CHANGE}.op = '{DELETE}')"
    own = [column for column in table.columns if column.name != strategy.soft]
    unavailable = _unavailable_columns(rows, CHANGE)
    left_out = [
        one.name for one in own if one.name in unavailable and one.name in columns and one.name not in strategy.keys
    ]
    selected = [f"{_value(column, strategy, columns, goes, left_out)} AS {quote(column.name)}" for column in own]
    soft = (
        [f"{deleted_at(table.column(strategy.soft), goes, f'{CHANGE}.ms')} AS {quote(strategy.soft)}"]
        if strategy.soft
        else []
    )
    kept = [quote(name) for name in _MESSAGE if name in columns]
    changed = twice.selectExpr(
        *selected, *soft, f"CASE WHEN {_OLD} THEN '{DELETE}' ELSE {CHANGE}.op END AS {OPERATION}",
        f"{CHANGE}.ms AS {EVENT_MS}", f"{CHANGE}.position AS {POSITION}", *kept, f"{_left_out_columns(left_out, goes)} AS {KEPT}",
    )  # fmt: skip
    return changed.withColumn(KEPT, f.col(KEPT).alias(KEPT, metadata={UNAVAILABLE_COLUMNS: left_out}))


def _unavailable_columns(rows: DataFrame, column: str) -> list[str]:
    """Return the columns whose value some message leaves out, from the metadata set where the rows were made."""
    columns: list[str] = rows.schema[column].metadata.get(UNAVAILABLE_COLUMNS, []) if column in rows.columns else []
    return columns


def _left_out_columns(left_out: Sequence[str], goes: str) -> str:
    """Return SQL for the columns whose value a message leaves out, as a JSON array; NULL where it has all."""
    if not left_out:
        return "CAST(NULL AS STRING)"
    names = ", ".join(
        f"CASE WHEN {quote(name)} IN {IS_UNAVAILABLE} THEN {text_literal(name)} END" for name in sorted(left_out)
    )
    return f"CASE WHEN NOT {goes} THEN nullif(to_json(filter(array({names}), one -> one IS NOT NULL)), '[]') END"


def is_required_condition(name: str) -> str:
    """Return SQL that is true where a row must have a value for the column: it is written, and not left out."""
    return f"NOT ({IS_DELETE}) AND NOT {_names(KEPT, name)}"


def with_typed_keys(rows: DataFrame, table: TableSpec, strategy: Changes) -> DataFrame:
    """Return the rows with keys in their own types, in which different spellings of one key are equal."""
    types = dict(rows.dtypes)
    selected = [
        f"{strict_cast(table.column(name), types[name])} AS {quote(name)}" if name in strategy.keys else quote(name)
        for name in rows.columns
    ]
    return rows.selectExpr(*selected)


def last_changes(rows: DataFrame, strategy: Changes) -> DataFrame:
    """Return the last change of each key, and how many there were.

    The position in the source's log decides where changes have one, then its clock, then the order of messages. Changes
    of different logs are compared by the clock. A row that a snapshot read is as new as the message's position: its
    time is that of the snapshot query, which may be later than changes that follow it.

    A change that leaves out a value takes it from the one before it in the micro-batch, if there is one. With soft
    deletes, a row that was written and then deleted is written as deleted.
    """
    from pyspark.sql import functions as f

    place = _place("") if "_source" in rows.columns else "0"
    left_out = _unavailable_columns(rows, KEPT)
    keys = [f.col(quote(key)) for key in strategy.keys]
    candidates = _candidates(rows, strategy, left_out)
    marked = rows.selectExpr("*", f"{origin_sql(POSITION)} AS {_ORIGIN}").repartition(*keys)
    whole = f.struct(*map(quote, rows.columns))
    order = f.expr(f"struct({POSITION}, {EVENT_MS}, {place})")
    of_origins = marked.groupBy(*keys, f.col(_ORIGIN)).agg(
        *(_newest(whole, f.expr(which), order).alias(name) for name, which in candidates.items()),
        f.count(f.lit(1)).alias(EVENTS),
    )
    grouped = of_origins.groupBy(*keys).agg(
        *(
            _newest(f.col(name), f.col(name).isNotNull(), f.expr(_clock(name, rows.columns))).alias(name)
            for name in candidates
        ),
        f.sum(EVENTS).alias(EVENTS),
    )
    return _chosen_changes(grouped, rows.columns, strategy, left_out)


def _candidates(rows: DataFrame, strategy: Changes, left_out: Sequence[str]) -> dict[str, str]:
    """Return the changes to find among those of a key: result columns with their conditions."""
    is_read = f"{OPERATION} = '{READ}'"
    candidates = {_LAST: f"NOT ({is_read})", _READ: is_read}
    written = f"NOT ({is_read}) AND NOT ({IS_DELETE})"
    if strategy.soft:
        candidates[_IMAGE] = written
    for number, name in enumerate(left_out):
        candidates[f"{_FILL}_{number}"] = f"{written} AND NOT {_names(KEPT, name)}"
    return candidates


def _names(kept: str, name: str) -> str:
    return f"coalesce(array_contains(from_json({kept}, 'ARRAY<STRING>'), {text_literal(name)}), false)"


def _newest(what: SparkColumn, which: SparkColumn, order: SparkColumn) -> SparkColumn:
    from pyspark.sql import functions as f

    return f.max_by(f.when(which, what), f.when(which, order))


def _clock(of: str, columns: Sequence[str]) -> str:
    return f"struct({of}.{EVENT_MS}, {_place(f'{of}.') if '_source' in columns else '0'})"


def _chosen_changes(
    grouped: DataFrame, columns: Sequence[str], strategy: Changes, left_out: Sequence[str]
) -> DataFrame:
    """Return one row for each key, from its candidates."""
    parts = [(f"{_READ}._source.{name}", f"{_LAST}._source.{name}") for name in ("topic", "partition")]
    same = " AND ".join(f"{one} <=> {other}" for one, other in parts)
    later = f"{same} AND {_place(f'{_READ}.')} > {_place(f'{_LAST}.')}" if "_source" in columns else "false"
    chosen = f"CASE WHEN {_LAST} IS NULL OR ({_READ} IS NOT NULL AND {later}) THEN {_READ} ELSE {_LAST} END"
    image = f"CASE WHEN {_LAST}.{OPERATION} = '{DELETE}' AND NOT ({_READ} IS NOT NULL AND {later}) THEN coalesce({_IMAGE}, {_READ}) END"
    fills = [f"{_FILL}_{number}" for number in range(len(left_out))]
    rows = grouped.selectExpr(
        f"{chosen} AS {_LAST}", EVENTS, *fills, *([f"{image} AS {_IMAGE}"] if strategy.soft else []), _READ
    )
    if not strategy.soft and not left_out:
        return rows.select(f"{_LAST}.*", EVENTS)
    of_last = (OPERATION, EVENT_MS, POSITION, strategy.soft, *_MESSAGE)

    def value(name: str) -> str:
        last = f"{_LAST}.{quote(name)}"
        if not strategy.soft:
            return last
        if name == OPERATION:
            return f"CASE WHEN {_IMAGE} IS NOT NULL THEN '{UPDATE}' ELSE {last} END"
        return (
            last if name in of_last else f"CASE WHEN {_IMAGE} IS NOT NULL THEN {_IMAGE}.{quote(name)} ELSE {last} END"
        )

    selected = {name: value(name) for name in columns}
    return _fill_left_out(rows, selected, left_out)


def _fill_left_out(rows: DataFrame, expressions: dict[str, str], left_out: Sequence[str]) -> DataFrame:
    """Fill values that were left out, from an earlier change of the micro-batch or from a snapshot's row before it."""
    still = []
    for number, name in enumerate(left_out):
        fill, wanted = f"{_FILL}_{number}", _names(expressions[KEPT], name)
        value = f"CASE WHEN {fill} IS NOT NULL THEN {fill}.{quote(name)} ELSE {_READ}.{quote(name)} END"
        still.append(f"CASE WHEN {wanted} AND {fill} IS NULL AND {_READ} IS NULL THEN {text_literal(name)} END")
        expressions = {**expressions, name: f"CASE WHEN {wanted} THEN {value} ELSE {expressions[name]} END"}
    if still:
        names = ", ".join(still)
        expressions = {**expressions, KEPT: f"nullif(to_json(filter(array({names}), one -> one IS NOT NULL)), '[]')"}
    return rows.selectExpr(*(f"{value} AS {quote(name)}" for name, value in expressions.items()), EVENTS)


def _place(of: str) -> str:
    """Return SQL for the position of a message among those of its partition or file."""
    parts = ("{}offset", "{}timestamp", "length({}message_id)", "{}message_id")
    return f"struct({', '.join(part.format(f'{of}_source.') for part in parts)})"


def with_json_key(rows: DataFrame, strategy: Changes) -> DataFrame:
    """Add the key as JSON, as the CDC watermark table stores it; a long one is cut, and ends with its hash."""
    options = ", ".join(f"{text_literal(name)}, {text_literal(value)}" for name, value in JSON_AS_IT_IS.items())
    json_key = f"to_json(struct({', '.join(map(quote, strategy.keys))}), map({options}))"
    short = f"concat(left({json_key}, {LONGEST_KEY - 70}), '…', sha2({json_key}, 256))"
    return rows.selectExpr(
        "*", f"CASE WHEN length({json_key}) > {LONGEST_KEY} THEN {short} ELSE {json_key} END AS {KEY}"
    )


def _value_before(key: str) -> str:
    return f"try_element_at({CHANGE}.before, {text_literal(key)})"


def _key(name: str, strategy: Changes, columns: set[str]) -> str:
    """Return SQL for a key: from the row, the row before, or the message's key, whose plain value is a single key."""
    sources = [quote(name)] if name in columns else []
    sources += [_value_before(name), f"try_element_at({CHANGE}.`key`, {text_literal(name)})"]
    sources += [f"{CHANGE}.scalar"] if len(strategy.keys) == 1 else []
    return f"coalesce({', '.join(sources)})"


def _value(column: Column, strategy: Changes, columns: set[str], goes: str, left_out: Sequence[str]) -> str:
    name, kind = column.name, f"try_element_at({CHANGE}.kinds, {text_literal(column.name)})"
    if name in strategy.keys:
        key = _key(name, strategy, columns)
        return convert_value(
            f"CASE WHEN {_OLD} THEN coalesce({_value_before(name)}, {key}) ELSE {key} END", kind, column
        )
    if name not in columns:
        return "CAST(NULL AS STRING)"
    kept = f" AND NOT coalesce({quote(name)} IN {IS_UNAVAILABLE}, false)" if name in left_out else ""
    return f"CASE WHEN NOT {goes}{kept} THEN {convert_value(quote(name), kind, column)} END"
