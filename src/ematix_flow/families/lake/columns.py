"""Pieces of Spark SQL that the strategies of a lake are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from ematix_flow.contract.shape import BATCH_ID, LOADED_AT
from ematix_flow.contract.write import WriteJob
from ematix_flow.declare.types import Column, ColumnType
from ematix_flow.families.frames import spark_type
from ematix_flow.families.lake.session import on_sail, quote, text

ROWS_SO_FAR = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"  # said, because not every engine ranges over bytes
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NUMBERS = ("small_int", "integer", "big_int", "float", "double", "numeric")
_TEXTS = ("text", "string", "json", "jsonb")


@dataclass(frozen=True)
class Words:
    """A job in Spark's words; `s` is the stage, `t` the target."""

    job: WriteJob

    @property
    def declared(self) -> tuple[str, ...]:
        """Names of the columns the source gives."""
        return self.job.shape.declared.column_names

    @property
    def table(self) -> tuple[str, ...]:
        """Names of the columns the target holds."""
        return self.job.shape.table.column_names

    def column(self, name: str) -> Column:
        """The column of that name."""
        return self.job.shape.column(name)

    def equal(self, keys: Iterable[str], *, left: str = "t", right: str = "s") -> str:
        """Keys equal, column by column; plain `=` where NULL cannot be."""
        return " AND ".join(
            f"{left}.{quote(key)} {'<=>' if self.column(key).nullable else '='} {right}.{quote(key)}" for key in keys
        )

    def differ(self, names: Sequence[str], *, left: str = "t", right: str = "s") -> str:
        """At least one of the columns differs; NULL differs from every value."""
        tests = [
            f"NOT ({self._meaning(f'{left}.{quote(name)}', name)} <=> {self._meaning(f'{right}.{quote(name)}', name)})"
            for name in names
        ]
        return f"({' OR '.join(tests)})" if tests else "false"

    def _meaning(self, expression: str, name: str) -> str:
        return by_meaning(expression) if self.column(name).type.kind == "jsonb" else expression

    def metadata(self) -> dict[str, str]:
        """Values of the load's own columns, where the table has them and the source does not give them."""
        values = {LOADED_AT: instant(self.job.started_at), BATCH_ID: text(self.job.run_id)}
        own = {column.name for column in self.job.shape.added}
        return {name: value for name, value in values.items() if name in own}

    def row_hash(self, names: Sequence[str], *, alias: str = "s") -> str:
        """SHA-256 over the columns; NULL and '' differ, and no value can imitate a separator."""
        parts: list[str] = []
        for name in names:
            raw = f"{alias}.{quote(name)}"
            value = as_text(raw, self.column(name).type)
            parts.append(f"CASE WHEN {raw} IS NULL THEN 'n|;' ELSE concat('v', {value}, '|;') END")
        return f"unhex(sha2(concat({', '.join(parts)}), 256))"


def by_meaning(expression: str) -> str:
    """A JSON document in one form for all spellings of it."""
    meaning = f"coalesce(to_json(try_parse_json({expression})), {expression})"
    if on_sail():  # which reads numbers as doubles: what more digits may tell apart stays as it is written
        return f"CASE WHEN {expression} RLIKE '[0-9][0-9.]{{15}}' THEN {expression} ELSE {meaning} END"
    return meaning


def as_text(expression: str, column_type: ColumnType) -> str:
    """The value as text: equal values give equal texts."""
    kind = column_type.kind
    if kind == "jsonb":
        expression = by_meaning(expression)
    if kind in _TEXTS:
        return f"replace({expression}, '|', '||')"
    if kind == "bytes":
        return f"hex({expression})"
    if kind == "timestamp_tz":
        return f"CAST(unix_micros({expression}) AS STRING)"
    if kind in ("float", "double"):
        return f"CAST({expression} + CAST(0 AS {spark_type(column_type)}) AS STRING)"  # -0.0 equals 0.0
    return f"CAST({expression} AS STRING)"


def micros(moment: datetime) -> int:
    """Microseconds since 1970; a moment without a zone is UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def instant(moment: datetime) -> str:
    """A TIMESTAMP literal that no session time zone can move."""
    return f"timestamp_micros({micros(moment)}L)"


def plus(expression: str, span: timedelta) -> str:
    """A TIMESTAMP moved forward."""
    return f"timestamp_micros(unix_micros({expression}) + {span // timedelta(microseconds=1)}L)"


def to_instant(expression: str, column_type: ColumnType) -> str:
    """A date or timestamp as an instant; without a zone it is UTC."""
    return expression if column_type.kind == "timestamp_tz" else f"CAST({expression} AS TIMESTAMP)"


def watermark_literal(value: str, column_type: ColumnType) -> str:
    """A stored watermark in its column's type."""
    if column_type.kind in _NUMBERS:
        return f"CAST({text(value)} AS {spark_type(column_type)})"
    if column_type.kind in ("date", "timestamp", "timestamp_tz"):
        return f"CAST({text(value)} AS {spark_type(column_type)})"
    return text(value)


def watermark_text(expression: str, column_type: ColumnType) -> str:
    """A column's value as the text a watermark is stored in."""
    if column_type.kind == "timestamp_tz":
        return f"concat(date_format({expression}, 'yyyy-MM-dd HH:mm:ss.SSSSSS'), '+00:00')"
    if column_type.kind == "timestamp":
        return f"date_format({expression}, 'yyyy-MM-dd HH:mm:ss.SSSSSS')"
    return f"CAST({expression} AS STRING)"


def since(query: str, column: str, literal: str) -> str:
    """The query, restricted to rows at or after the literal and rows with NULL."""
    return f"SELECT * FROM (\n{query}\n) AS q WHERE {quote(column)} >= {literal} OR {quote(column)} IS NULL"
