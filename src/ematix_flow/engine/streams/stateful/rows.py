"""Rows of a micro-batch with their event time, what is late among them, and what was heard of them while they were read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.engine.streams.dead_letters import DeadLetters
from ematix_flow.engine.streams.stateful.operator import AT
from ematix_flow.families.carry import refusing_sql
from ematix_flow.families.lake.session import quote, text
from ematix_flow.families.messages.decode import RAW, SOURCE, moment_of
from ematix_flow.families.observed import heard
from ematix_flow.foundation.errors import MissingColumn, RunFailed
from ematix_flow.foundation.names import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

IS_LATE = "_flow_is_late"
_TIMELESS = "_flow_timeless"
STAGE = "transform"
_KINDS = "timestamp", "timestamp_ntz", "date", "string", "int", "bigint", "long"


@dataclass(frozen=True)
class EventTime:
    """The column that says when a row happened."""

    column: str

    def placed(self, rows: DataFrame, dead: DeadLetters | None) -> DataFrame:
        """The rows with the moment in `AT`; those without one are dead letters, or the end of the micro-batch."""
        from pyspark.sql import functions as f

        if not set(rows.columns) - {RAW, SOURCE}:  # of a source of which nobody has understood anything yet
            return rows.withColumn(AT, f.lit(None).cast("bigint")).where("false")
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
        timed = rows.withColumn(AT, f.unix_micros(moment_of(f.col(quote(self.column)), kind)))
        if dead is None:
            refusal = refusing_sql(
                text(f"a row has no event time: {self.column} is NULL, or no point in time"), before="", after="",
                most=200, hint='leave such rows out in transform_sql=, or say transform_on_error="dlq"',
            )  # fmt: skip
            return timed.where(f"CASE WHEN {AT} IS NOT NULL THEN true ELSE {refusal} END")
        wrong = f"CASE WHEN {AT} IS NULL THEN {text(f'{self.column} is NULL, or no point in time')} END"
        return dead.split(timed.withColumn(_TIMELESS, f.expr(wrong)), _TIMELESS, stage=STAGE, hidden=(AT,))


@dataclass(frozen=True)
class Heard:
    """What a micro-batch was made of."""

    newest: tuple[int | None, ...]
    """The newest event time of every source."""
    late: int
    ahead: int
    """Rows that are too far ahead of the clock to be believed."""
    due: int | None
    """The next moment at which something of what was added comes out."""


@dataclass
class Watched:
    """Counts rows while they are read for the first time."""

    late: str | None
    """SQL over timed rows; None where nothing can be late yet."""
    horizon: int
    """Moments behind this are ahead of every clock."""
    _sources: list[Observation] = field(default_factory=list, init=False)
    _due: Observation | None = field(default=None, init=False)

    def marked(self, rows: DataFrame) -> DataFrame:
        """Timed rows that say whether they are late."""
        return rows.selectExpr("*", f"{f'coalesce({self.late}, false)' if self.late else 'false'} AS {IS_LATE}")

    def in_time(self, marked: DataFrame) -> DataFrame:
        """Of one source, those that are not; all of them are counted."""
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
        """What goes into the state, with an ear on when it comes out."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        self._due = Observation()
        still = f"CASE WHEN {due} > {mark} THEN {due} END" if mark is not None else due
        return partials.observe(self._due, f.expr(f"min({still})").alias("due"))

    def heard(self) -> Heard:
        """Asked when everything was read."""
        found = [heard(one) for one in self._sources]
        due = heard(self._due).get("due") if self._due is not None else None
        return Heard(
            tuple(_whole(one.get("newest")) for one in found),
            sum(int(one.get("late") or 0) for one in found),
            sum(int(one.get("ahead") or 0) for one in found),
            _whole(due),
        )


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)
