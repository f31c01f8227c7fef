"""Event times of a micro-batch's rows, their lateness, and the statistics observed while rows are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.dataplane.spark_session import observed_counts
from ematix_flow.dataplane.task_errors import raise_bad_value_sql
from ematix_flow.foundation.errors import MissingColumn, RunFailed
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.messages.decode import RAW, SOURCE, parse_moment
from ematix_flow.sql.spark_text import quote, text_literal
from ematix_flow.streaming.dlq.letters import FailedRows, split_failed
from ematix_flow.streaming.state.operator import AT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

IS_LATE = "_flow_is_late"
_TIMELESS = "_flow_timeless"
STAGE = "transform"
_KINDS = "timestamp", "timestamp_ntz", "date", "string", "int", "bigint", "long"


@dataclass(frozen=True)
class EventTime:
    """The column with the event time of a row."""

    column: str

    def with_event_time(self, rows: DataFrame, *, splits: bool) -> tuple[DataFrame, FailedRows | None]:
        """Return the rows with their moment in `AT`, and those without one, which fail the micro-batch unless `splits`."""
        from pyspark.sql import functions as f

        if not set(rows.columns) - {RAW, SOURCE}:  # of a source none of whose messages was decoded yet
            return rows.withColumn(AT, f.lit(None).cast("bigint")).where("false"), None
        if self.column not in rows.columns:
            shown = [name for name in rows.columns if not name.startswith("_flow_")]
            raise MissingColumn(
                f"the event time {self.column!r} is not among the columns of the rows",
                hint=did_you_mean(self.column, shown) or "select it in transform_sql=",
            )
        kind = rows.schema[self.column].dataType
        if kind.typeName() not in _KINDS and kind.simpleString() != "void":
            raise RunFailed(
                f"the event time {self.column!r} is of type {kind.simpleString()}",
                hint=f"make it one in transform_sql=: CAST({self.column} AS TIMESTAMP)",
            )
        timed = rows.withColumn(AT, f.unix_micros(parse_moment(f.col(quote(self.column)), kind)))
        if not splits:
            refusal = raise_bad_value_sql(
                text_literal(f"a row has no event time: {self.column} is NULL, or no point in time"), before="", after="",
                most=200, hint='leave such rows out in transform_sql=, or say transform_on_error="dlq"',
            )  # fmt: skip
            return timed.where(f"CASE WHEN {AT} IS NOT NULL THEN true ELSE {refusal} END"), None
        wrong = f"CASE WHEN {AT} IS NULL THEN {text_literal(f'{self.column} is NULL, or no point in time')} END"
        return split_failed(timed.withColumn(_TIMELESS, f.expr(wrong)), _TIMELESS, stage=STAGE, hidden=(AT,))


@dataclass(frozen=True)
class BatchStatistics:
    """The statistics of a micro-batch."""

    newest: tuple[int | None, ...]
    """The newest event time of every source."""
    late: int
    ahead: int
    """Rows too far ahead of the clock to move the watermark."""
    due: int | None
    """The next moment at which some of the added rows are emitted."""


@dataclass
class BatchObserver:
    """An observer that counts rows while they are read for the first time."""

    late: str | None
    """SQL over timed rows; None where no row can be late yet."""
    horizon: int
    """The moment after which a row is too far ahead of the clock."""
    _sources: list[Observation] = field(default_factory=list, init=False)
    _due: Observation | None = field(default=None, init=False)

    def marked(self, rows: DataFrame) -> DataFrame:
        """Return timed rows with a column for whether they are late."""
        return rows.selectExpr("*", f"{f'coalesce({self.late}, false)' if self.late else 'false'} AS {IS_LATE}")

    def in_time(self, marked: DataFrame) -> DataFrame:
        """Return the rows of one source that are not late; all of them are counted."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        observation = Observation()
        self._sources.append(observation)
        counted = marked.observe(
            observation,
            f.expr(f"max(CASE WHEN {AT} <= {self.horizon} THEN {AT} END)").alias("newest"),
            f.expr(f"count(CASE WHEN {IS_LATE} THEN 1 END)").alias("late"),
            f.expr(f"count(CASE WHEN {AT} > {self.horizon} THEN 1 END)").alias("ahead"),
        )
        return counted.where(f"NOT {IS_LATE}").drop(IS_LATE)

    def added(self, partials: DataFrame, due: str, mark: int | None) -> DataFrame:
        """Return the rows that are added to the state, with an observation of when the first of them is due."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        self._due = Observation()
        still = f"CASE WHEN {due} > {mark} THEN {due} END" if mark is not None else due
        return partials.observe(self._due, f.expr(f"min({still})").alias("due"))

    def statistics(self) -> BatchStatistics:
        """Return the statistics; call it after all rows were read."""
        counts = [observed_counts(one) for one in self._sources]
        due = observed_counts(self._due).get("due") if self._due is not None else None
        return BatchStatistics(
            tuple(_integer_or_none(one.get("newest")) for one in counts),
            sum(int(one.get("late") or 0) for one in counts),
            sum(int(one.get("ahead") or 0) for one in counts),
            _integer_or_none(due),
        )


def _integer_or_none(value: Any) -> int | None:
    return None if value is None else int(value)
