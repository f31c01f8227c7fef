"""Changes for one table: its keys, its columns out of what messages wrote, and of each key the last change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.contract.changes import DELETE, EVENT_MS, EVENTS, KEY, LONGEST_KEY, OPERATION, POSITION, READ
from ematix_flow.declare.strategy import Changes
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import Column
from ematix_flow.engine.prepare import strict_cast
from ematix_flow.families.frames import JSON_AS_IT_IS
from ematix_flow.families.lake.session import quote, text
from ematix_flow.families.messages.json_learning import learned_type
from ematix_flow.families.messages.json_rows import parts_read

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

CHANGE = "_flow_change"
"""What happened, beside the row: STRUCT<op, ms, position, kinds, before, key, scalar, row_text>."""
IS_DELETE = f"{OPERATION} = '{DELETE}'"
_OLD, _LAST, _READ = "_flow_old", "_flow_last", "_flow_read"
_DAYS = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
_MOMENTS = {
    "io.debezium.time.Timestamp": "timestamp_millis({})",
    "org.apache.kafka.connect.data.Timestamp": "timestamp_millis({})",
    "io.debezium.time.MicroTimestamp": "timestamp_micros({})",
    "io.debezium.time.NanoTimestamp": "timestamp_micros({} div 1000)",
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_TIMES = ("date", "timestamp", "timestamp_tz")
_NO_UNIT = " (a number without its unit)"


def of_table(rows: DataFrame, table: TableSpec, strategy: Changes) -> DataFrame:
    """The changes with the columns of one table as texts, and what is staged beside them.

    An update that tells of another key than before is two changes: the row of the old key goes.
    """
    there = set(rows.columns)
    moved = " OR ".join(f"({_before(key)} <> {_key(key, strategy, there)})" for key in strategy.keys)
    moved = f"coalesce({CHANGE}.op <> '{DELETE}' AND ({moved}), false)"
    twice = rows.selectExpr("*", f"explode(CASE WHEN {moved} THEN array(true, false) ELSE array(false) END) AS {_OLD}")
    goes = f"({_OLD} OR {CHANGE}.op = '{DELETE}')"
    made = [
        f"{_value(column, strategy, there, goes)} AS {quote(column.name)}"
        for column in table.columns
        if column.name != strategy.soft
    ]
    soft = [f"{_soft(table.column(strategy.soft), goes)} AS {quote(strategy.soft)}"] if strategy.soft else []
    kept = [quote(name) for name in ("_raw", "_source") if name in there]
    return twice.selectExpr(
        *made, *soft, f"CASE WHEN {_OLD} THEN '{DELETE}' ELSE {CHANGE}.op END AS {OPERATION}",
        f"{CHANGE}.ms AS {EVENT_MS}", f"{CHANGE}.position AS {POSITION}", *kept,
    )  # fmt: skip


def with_typed_keys(rows: DataFrame, table: TableSpec, strategy: Changes) -> DataFrame:
    """Keys in their own types, in which two ways to write one are the same."""
    given = dict(rows.dtypes)
    made = [
        f"{strict_cast(table.column(name), given[name])} AS {quote(name)}" if name in strategy.keys else quote(name)
        for name in rows.columns
    ]
    return rows.selectExpr(*made)


def last_changes(rows: DataFrame, strategy: Changes) -> DataFrame:
    """Of each key the last change, and how many there were.

    The source's clock decides, then its log, then the order of messages. What a snapshot read is as new as the message's
    place says: its moment is that of the look, which may be later than changes that follow it.
    """
    from pyspark.sql import functions as f

    whole, has_source = f.struct(*map(quote, rows.columns)), "_source" in rows.columns
    place = _place("") if has_source else "0"
    order = f.expr(f"struct({EVENT_MS}, {POSITION}, {place})")
    is_read = f.expr(f"{OPERATION} = '{READ}'")

    def newest(which: SparkColumn, name: str) -> SparkColumn:
        return f.max_by(f.when(which, whole), f.when(which, order)).alias(name)

    grouped = rows.groupBy(*(f.col(quote(key)) for key in strategy.keys)).agg(
        newest(~is_read, _LAST), newest(is_read, _READ), f.count(f.lit(1)).alias(EVENTS)
    )
    parts = [(f"{_READ}._source.{name}", f"{_LAST}._source.{name}") for name in ("topic", "partition")]
    same = " AND ".join(f"{one} <=> {other}" for one, other in parts)
    later = f"{same} AND {_place(f'{_READ}.')} > {_place(f'{_LAST}.')}" if has_source else "false"
    chosen = f"CASE WHEN {_LAST} IS NULL OR ({_READ} IS NOT NULL AND {later}) THEN {_READ} ELSE {_LAST} END"
    return grouped.selectExpr(f"{chosen} AS {_LAST}", EVENTS).select(f"{_LAST}.*", EVENTS)


def _place(of: str) -> str:
    """Where a message stands among those of its partition or file."""
    parts = ("{}offset", "{}timestamp", "length({}message_id)", "{}message_id")
    return f"struct({', '.join(part.format(f'{of}_source.') for part in parts)})"


def with_json_key(rows: DataFrame, strategy: Changes) -> DataFrame:
    """The key as the gate knows it."""
    options = ", ".join(f"{text(name)}, {text(value)}" for name, value in JSON_AS_IT_IS.items())
    said = f"to_json(struct({', '.join(map(quote, strategy.keys))}), map({options}))"
    short = f"concat(left({said}, {LONGEST_KEY - 70}), '…', sha2({said}, 256))"
    return rows.selectExpr("*", f"CASE WHEN length({said}) > {LONGEST_KEY} THEN {short} ELSE {said} END AS {KEY}")


def learned_columns(rows: DataFrame) -> StructType:
    """The types of the rows' columns: what Connect's schema says, else what the values look like."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    told = rows.selectExpr(f"{CHANGE}.row_text AS said", f"{CHANGE}.kinds AS kinds")
    found = learned_type(told, f.col("said"), read=parts_read)
    schema = told.where("kinds IS NOT NULL").select("kinds").first()
    kinds = {name: _type_of(kind) for name, kind in (schema["kinds"] if schema is not None else {}).items()}
    learned = {field.name: field.dataType for field in found.fields} if found is not None else {}
    learned = {name: kind for name, kind in learned.items() if not isinstance(kind, t.NullType)}
    own = [name for name in rows.columns if name not in (CHANGE, "_raw", "_source")]
    own.sort(key=lambda name: list(learned).index(name) if name in learned else len(learned))
    types = {name: kinds.get(name) or learned.get(name) or t.StringType() for name in own}
    return t.StructType([t.StructField(name, kind) for name, kind in types.items()])


def _type_of(kind: str) -> DataType | None:
    """What Connect's schema means, where its values do not tell."""
    from pyspark.sql import types as t

    name, scale, precision = kind.split("|")
    if name == _DECIMAL:
        return t.DecimalType(min(int(precision or 38), 38), int(scale or 0))
    plain: dict[str, type[DataType]] = {
        "boolean": t.BooleanType, "float": t.DoubleType, "double": t.DoubleType, "bytes": t.BinaryType,
        "io.debezium.time.ZonedTimestamp": t.TimestampType,
    }  # fmt: skip
    plain |= dict.fromkeys(_DAYS, t.DateType) | dict.fromkeys(_MOMENTS, t.TimestampNTZType)
    plain |= dict.fromkeys(("int8", "int16", "int32", "int64"), t.LongType)
    return plain[name]() if name in plain else None


def _before(key: str) -> str:
    return f"try_element_at({CHANGE}.before, {text(key)})"


def _key(name: str, strategy: Changes, there: set[str]) -> str:
    """From the row, from the row as it was, from the message's key; a plain value is the key that has one column."""
    found = [quote(name)] if name in there else []
    found += [_before(name), f"try_element_at({CHANGE}.`key`, {text(name)})"]
    found += [f"{CHANGE}.scalar"] if len(strategy.keys) == 1 else []
    return f"coalesce({', '.join(found)})"


def _value(column: Column, strategy: Changes, there: set[str], goes: str) -> str:
    name = column.name
    if name in strategy.keys:
        key = _key(name, strategy, there)
        return converted(f"CASE WHEN {_OLD} THEN coalesce({_before(name)}, {key}) ELSE {key} END", column)
    if name not in there:
        return "CAST(NULL AS STRING)"
    return f"CASE WHEN NOT {goes} THEN {converted(quote(name), column)} END"


def _soft(column: Column, goes: str) -> str:
    """When the row was deleted, or that it was; NULL or not while it lives."""
    if column.type.kind == "boolean":
        return goes
    moment = f"coalesce(timestamp_millis({CHANGE}.ms), current_timestamp())"
    kind = {"date": "DATE", "timestamp": "TIMESTAMP_NTZ"}.get(column.type.kind, "TIMESTAMP")
    return f"CASE WHEN {goes} THEN CAST({moment} AS {kind}) END"


def converted(value: str, column: Column) -> str:
    """A text of a message as one that the column's type takes, as far as Connect's schema says what it means."""
    said = f"try_element_at({CHANGE}.kinds, {text(column.name)})"
    kind, scale = f"split_part({said}, '|', 1)", f"split_part({said}, '|', 2)"
    if column.type.kind in _TIMES:
        return _time(value, kind, column.type.kind)
    if column.type.kind == "numeric":
        return _decimal(value, kind, scale)
    if column.type.kind == "bytes":  # JSON has no bytes, and everybody writes them so
        return f"coalesce(try_to_binary({value}, 'base64'), CAST({value} AS BINARY))"
    return value


def _time(value: str, kind: str, wanted: str) -> str:
    number = f"CAST({value} AS BIGINT)"
    form = "yyyy-MM-dd" if wanted == "date" else "yyyy-MM-dd HH:mm:ss.SSSSSS"
    moments = " ".join(
        f"WHEN {text(name)} THEN date_format({made.format(number)}, '{form}')" for name, made in _MOMENTS.items()
    )
    days = " ".join(
        f"WHEN {text(name)} THEN CAST(date_from_unix_date(CAST({value} AS INT)) AS STRING)" for name in _DAYS
    )
    # A number alone would be taken for a year.
    unknown = f"concat({value}, {text(_NO_UNIT)})"
    return f"CASE WHEN {value} RLIKE '^-?[0-9]+$' THEN CASE {kind} {moments} {days} ELSE {unknown} END ELSE {value} END"


def _decimal(value: str, kind: str, scale: str) -> str:
    inner = f"from_json({value}, 'scale INT, value STRING')"
    return (
        f"CASE WHEN {kind} = '{_DECIMAL}' THEN "
        f"coalesce({_unscaled(value, f'coalesce(try_cast({scale} AS INT), 0)')}, {value}) "
        f"WHEN startswith({value}, '{{') THEN coalesce({_unscaled(f'{inner}.value', f'{inner}.scale')}, {value}) "
        f"ELSE {value} END"
    )


def _unscaled(value: str, scale: str) -> str:
    """A number of bytes, the highest first and in two's complement, with its point; NULL where it is none."""
    digits = f"hex(try_to_binary({value}, 'base64'))"
    is_negative = f"{digits} >= '8'"
    plain = (
        f"CASE WHEN {is_negative} THEN translate({digits}, '0123456789ABCDEF', 'FEDCBA9876543210') ELSE {digits} END"
    )
    padded = f"lpad({plain}, 32, '0')"
    parts = [f"CAST(conv(substr({padded}, {at}, {length}), 16, 10) AS DECIMAL(38, 0))" for at, length in _PARTS]
    size = (
        f"try_add(try_multiply({parts[0]}, {1 << 112}BD), try_add(try_multiply({parts[1]}, {1 << 56}BD), {parts[2]}))"
    )
    number = f"CAST(try_add({size}, CASE WHEN {is_negative} THEN 1BD ELSE 0BD END) AS STRING)"
    text_ = f"lpad({number}, greatest(length({number}), {scale} + 1), '0')"
    point = f"CASE WHEN {scale} > 0 THEN concat(left({text_}, length({text_}) - {scale}), '.', right({text_}, {scale})) ELSE {text_} END"
    fits = f"length({digits}) BETWEEN 2 AND 32"
    return f"CASE WHEN {fits} THEN concat(CASE WHEN {is_negative} THEN '-' ELSE '' END, {point}) END"


_PARTS = ((1, 4), (5, 14), (19, 14))
"""Two, seven and seven bytes: so much of a number fits a whole number of Spark's."""
