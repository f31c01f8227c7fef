"""Spark SQL building blocks of a lake's strategies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from ematix_flow.contract.shape import BATCH_ID, LOADED_AT
from ematix_flow.contract.write import WriteJob
from ematix_flow.dataplane.spark_session import is_active_session_sail
from ematix_flow.dataplane.type_mapping import spark_type
from ematix_flow.declare.types import Column, ColumnType
from ematix_flow.sql.spark_text import quote, text_literal

ROWS_SO_FAR = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"  # explicit: some engines lack RANGE over bytes
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NUMBERS = ("small_int", "integer", "big_int", "float", "double", "numeric")
_TEXTS = ("text", "string", "json", "jsonb")


@dataclass(frozen=True)
class LakeJobSql:
    """SQL of a job in Spark's dialect; `s` is the stage, `t` the target."""

    job: WriteJob

    @property
    def declared(self) -> tuple[str, ...]:
        """Return the names of the columns that the source provides."""
        return self.job.shape.declared.column_names

    @property
    def table(self) -> tuple[str, ...]:
        """Return the names of the target's columns."""
        return self.job.shape.table.column_names

    def column(self, name: str) -> Column:
        """Return the column of that name."""
        return self.job.shape.column(name)

    def equal(self, keys: Iterable[str], *, left: str = "t", right: str = "s") -> str:
        """Return the condition that the keys are equal; plain `=` for NOT NULL columns."""
        return " AND ".join(
            f"{left}.{quote(key)} {'<=>' if self.column(key).nullable else '='} {right}.{quote(key)}" for key in keys
        )

    def differ(self, names: Sequence[str], *, left: str = "t", right: str = "s") -> str:
        """Return the NULL-safe condition that at least one of the columns differs."""
        tests = [
            f"NOT ({self._canonical(f'{left}.{quote(name)}', name)} <=> {self._canonical(f'{right}.{quote(name)}', name)})"
            for name in names
        ]
        return f"({' OR '.join(tests)})" if tests else "false"

    def _canonical(self, expression: str, name: str) -> str:
        return canonical_json(expression) if self.column(name).type.kind == "jsonb" else expression

    def metadata(self) -> dict[str, str]:
        """Return values of the metadata columns that the table has and the source does not provide."""
        values = {LOADED_AT: instant(self.job.started_at), BATCH_ID: text_literal(self.job.run_id)}
        own = {column.name for column in self.job.shape.added}
        return {name: value for name, value in values.items() if name in own}

    def row_hash(self, names: Sequence[str], *, alias: str = "s") -> str:
        """Return the SHA-256 over the columns; NULL and '' differ, and no value can imitate a separator."""
        parts: list[str] = []
        for name in names:
            raw = f"{alias}.{quote(name)}"
            value = as_text(raw, self.column(name).type)
            parts.append(f"CASE WHEN {raw} IS NULL THEN 'n|;' ELSE concat('v', {value}, '|;') END")
        return f"unhex(sha2(concat({', '.join(parts)}), 256))"


def canonical_json(expression: str) -> str:
    """Return SQL for a canonical form of a JSON document."""
    meaning = f"coalesce(to_json(try_parse_json({expression})), {expression})"
    if (
        is_active_session_sail()
    ):  # Sail reads JSON numbers as doubles: documents with more digits are compared as written
        return f"CASE WHEN {expression} RLIKE '[0-9][0-9.]{{15}}' THEN {expression} ELSE {meaning} END"
    return meaning


def as_text(expression: str, column_type: ColumnType) -> str:
    """Return the value as text; equal values give equal texts."""
    kind = column_type.kind
    if kind == "jsonb":
        expression = canonical_json(expression)
    if kind in _TEXTS:
        return f"replace({expression}, '|', '||')"
    if kind == "bytes":
        return f"hex({expression})"
    if kind == "timestamp_tz":
        return f"CAST(unix_micros({expression}) AS STRING)"
    if kind in ("float", "double"):
        return f"CAST({expression} + CAST(0 AS {spark_type(column_type)}) AS STRING)"  # -0.0 equals 0.0
    return f"CAST({expression} AS STRING)"


def epoch_micros(moment: datetime) -> int:
    """Return the microseconds since 1970; a datetime without a time zone is UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def instant(moment: datetime) -> str:
    """Return a TIMESTAMP literal that does not depend on the session's time zone."""
    return f"timestamp_micros({epoch_micros(moment)}L)"


def plus(expression: str, span: timedelta) -> str:
    """Return a TIMESTAMP moved forward."""
    return f"timestamp_micros(unix_micros({expression}) + {span // timedelta(microseconds=1)}L)"


def to_instant(expression: str, column_type: ColumnType) -> str:
    """Return a date or timestamp as a TIMESTAMP; one without a time zone is UTC."""
    return expression if column_type.kind == "timestamp_tz" else f"CAST({expression} AS TIMESTAMP)"


def watermark_literal(value: str, column_type: ColumnType) -> str:
    """Return a stored watermark in its column's type."""
    if column_type.kind in _NUMBERS:
        return f"CAST({text_literal(value)} AS {spark_type(column_type)})"
    if column_type.kind in ("date", "timestamp", "timestamp_tz"):
        return f"CAST({text_literal(value)} AS {spark_type(column_type)})"
    return text_literal(value)


def watermark_text(expression: str, column_type: ColumnType) -> str:
    """Return a column's value as the text in which a watermark is stored."""
    if column_type.kind == "timestamp_tz":
        return f"concat(date_format({expression}, 'yyyy-MM-dd HH:mm:ss.SSSSSS'), '+00:00')"
    if column_type.kind == "timestamp":
        return f"date_format({expression}, 'yyyy-MM-dd HH:mm:ss.SSSSSS')"
    return f"CAST({expression} AS STRING)"


def since(query: str, column: str, literal: str) -> str:
    """Return the query, restricted to rows at or after the literal and rows with NULL."""
    return f"SELECT * FROM (\n{query}\n) AS q WHERE {quote(column)} >= {literal} OR {quote(column)} IS NULL"
