"""Dead letters of a micro-batch: the rows that failed in its steps, as values, and the one step that stores them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Protocol

from ematix_flow.dataplane.spark_session import observed_counts
from ematix_flow.declare.fingerprint import stream_fingerprint
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import BigInt, Bytes, Column, Integer, String, Text, TimestampTZ
from ematix_flow.foundation.errors import Brake
from ematix_flow.sql.spark_text import quote, text_literal
from ematix_flow.streaming.dlq.commit_coverage import CoverageByTarget, is_fully_covered, uncovered_records
from ematix_flow.streaming.runtime.decoding import line_format_of, payload_format_of
from ematix_flow.streaming.runtime.source_union import ORIGIN_FIELD, source_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PENDING, LEASED, PARKED = "pending", "leased", "parked"
RECORDS = TableSpec(
    "ematix_flow",
    "dlq_records",
    (
        Column(String(64), False, True, "id"),
        Column(String(255), False, False, "pipeline_name"),
        Column(String(32), False, False, "stage"),
        Column(Text(), False, False, "error"),
        Column(String(255), True, False, "target"),
        Column(Text(), True, False, "source_id"),
        Column(Text(), True, False, "position"),
        Column(Bytes(), True, False, "message_key"),
        Column(Text(), True, False, "headers"),
        Column(Bytes(), True, False, "payload"),
        Column(String(32), False, False, "payload_format"),
        Column(TimestampTZ(), True, False, "event_ts"),
        Column(TimestampTZ(), False, False, "failed_at"),
        Column(Integer(), False, False, "attempt"),
        Column(String(32), False, False, "status"),
        Column(TimestampTZ(), True, False, "leased_until"),
        Column(String(64), True, False, "pipeline_version"),
        Column(BigInt(), False, False, "batch"),
        Column(String(64), True, False, "generation"),
    ),
)
DECODE = "decode"
ROW = "row"
"""The payload format of a row that SQL made of several messages, stored as JSON."""
_PLACE = "_flow_place"
"""The column that identifies a row of the micro-batch, the same whichever target refuses it."""
_OF_A_MESSAGE = ("source_id", "position", "message_key", "headers", "payload")
_NO_SOURCE = (
    "CAST(NULL AS STRUCT<topic: STRING, partition: INT, offset: BIGINT, key: BINARY, "
    "headers: ARRAY<STRUCT<key: STRING, value: BINARY>>, message_id: STRING, timestamp: TIMESTAMP>)"
)


class DeadLetterStore(Protocol):
    """A store of dead-letter records: a table, a topic, or the source's own broker."""

    open_batch: int | None
    """The micro-batch that an earlier process began and did not finish, and may have written records of."""

    def retract(self, number: int, coverage: CoverageByTarget, target: str | None) -> None:
        """Delete the records of an earlier try of a micro-batch, for one target or all, that no commit covers."""

    def write(self, number: int, records: DataFrame) -> None:
        """Add records of a micro-batch to those already stored."""


def _uncounted() -> int | None:
    return None


@dataclass(frozen=True)
class FailedRows:
    """Rows that failed in one step, with the error of each."""

    rows: DataFrame
    column: str
    """The column with the errors; NULL in rows that did not fail."""
    stage: str
    target: str | None = None
    counted: Callable[[], int | None] = _uncounted
    """Returns their number without a Spark job, once the good rows beside them were read; None where not counted."""


def split_failed(
    rows: DataFrame, column: str, *, stage: str, target: str | None = None, hidden: Sequence[str] = ()
) -> tuple[DataFrame, FailedRows]:
    """Return the rows without an error in this column, and the others, which are counted while the good ones are read.

    `hidden` columns are left out of the letters.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    watch = Observation()
    failed = FailedRows(rows.drop(*hidden), column, stage, target, lambda: observed_counts(watch).get("bad"))
    watched = rows.observe(watch, f.count(f.col(quote(column))).alias("bad"))
    return watched.where(f"{quote(column)} IS NULL").drop(column), failed


@dataclass(frozen=True)
class BatchLetters:
    """The rows of one micro-batch that failed so far."""

    number: int
    decoded: tuple[DataFrame, ...] = ()
    """The decoded rows of every source, good and bad."""
    waiting: tuple[FailedRows, ...] = ()
    """Rows whose letters are not stored yet."""
    stored: tuple[FailedRows, ...] = ()
    count: int = 0
    """The letters stored so far."""
    messages: int | None = None
    """The number of messages of the micro-batch, good and bad; None until it is counted."""
    read_by: frozenset[str] | None = None
    """The targets for which the good rows were read, by which failed rows are counted; None before they were read."""
    has_failed_job: bool = False
    """Whether observed counts may be incomplete, because a job over the rows failed, or did not read all of them."""

    def plus(self, *failed: FailedRows) -> BatchLetters:
        """Return the letters with more failed rows."""
        return replace(self, waiting=(*self.waiting, *failed))

    def with_messages(self) -> BatchLetters:
        """Return the letters with the number of messages; Spark counts them the first time."""
        if self.messages is not None:
            return self
        return replace(self, messages=sum(rows.count() for rows in self.decoded))

    def counted(self, failed: FailedRows) -> int | None:
        """Return the number of failed rows as far as it was observed; None where it is unknown."""
        if self.read_by is None or self.has_failed_job or failed.target not in (None, *self.read_by):
            return None
        return failed.counted()


@dataclass(frozen=True)
class DeadLetters:
    """The step that stores the letters of a micro-batch, before anything of it is published."""

    spec: StreamSpec
    store: DeadLetterStore | None
    """None where bad rows are only counted."""

    def is_retry(self, number: int) -> bool:
        """Return whether an earlier try of the micro-batch may have left letters."""
        return self.store is not None and self.store.open_batch == number

    def store_waiting(
        self, letters: BatchLetters, coverage: CoverageByTarget | None = None, *, target: str | None = None
    ) -> BatchLetters:
        """Store the letters that wait, and return all letters of the micro-batch; raise Brake if there are too many.

        `coverage` is given when the micro-batch may be a retry. Records of an earlier try that this one does not produce
        are then deleted first, unless their target has the micro-batch from that try. Both happen before any other
        target publishes: a process that crashes in between leaves a micro-batch that is retried, and runs this again.
        """
        if coverage is not None and is_fully_covered(coverage):
            return replace(letters, waiting=(), stored=(*letters.stored, *letters.waiting))
        records = self._waiting_records(letters, coverage or {})
        if self.store is not None and coverage is not None:
            self.store.retract(letters.number, coverage, target)
        done = replace(letters, waiting=(), stored=(*letters.stored, *letters.waiting))
        count = records.count() if records is not None else 0
        if records is None or not count:
            return done
        done = self._within_limit(done)
        if self.store is not None:
            batch = f"CAST({letters.number} AS BIGINT) AS batch"
            self.store.write(letters.number, records.drop(_PLACE).selectExpr("*", batch))
        return replace(done, count=letters.count + count)

    def _waiting_records(self, letters: BatchLetters, coverage: CoverageByTarget) -> DataFrame | None:
        """Return the records to store; no Spark job is run where the observed counts are all zero."""
        counts = [(failed, letters.counted(failed)) for failed in letters.waiting]
        records = [self._records(failed) for failed, count in counts if count != 0]
        if not records or (not any(count for _, count in counts) and _union(records).isEmpty()):
            return None
        return uncovered_records(_distinct(records), coverage)

    def _within_limit(self, letters: BatchLetters) -> BatchLetters:
        """Return the letters, with the number of messages where it is needed; raise Brake if too many are bad."""
        most = self.spec.bad_rows.max_fraction
        if most is None or not letters.decoded:
            return letters
        letters = letters.with_messages()
        every = [self._records(failed) for failed in letters.stored]
        bad, total = _distinct(every).select(_PLACE).distinct().count(), letters.messages or 0
        if bad > most * total:
            raise Brake(
                f"{bad} of {total} messages of batch {letters.number} are bad, more than max_bad_fraction={most:g} allows; "
                "it was not finished",
                hint="look at the messages; correct their producer, or raise max_bad_fraction",
            )
        return letters

    def _records(self, failed: FailedRows) -> DataFrame:
        stage, target = failed.stage, failed.target
        rows = failed.rows.where(f"{quote(failed.column)} IS NOT NULL")
        target_text = "CAST(NULL AS STRING)" if target is None else text_literal(target)
        row = f"source_id, position, {text_literal(stage)}"
        identity = f"concat_ws('/', {text_literal(self.spec.name)}, {row}, {target_text}, sha2(payload, 256), copy)"
        return _with_message_facts(rows, failed.column).selectExpr(
            f"sha2({identity}, 256) AS id",
            f"{text_literal(self.spec.name)} AS pipeline_name",
            f"{text_literal(stage)} AS stage",
            "error",
            f"{target_text} AS target",
            *_OF_A_MESSAGE,
            f"{self._form(rows, stage)} AS payload_format",
            "event_ts",
            "current_timestamp() AS failed_at",
            "1 AS attempt",
            f"{text_literal(PENDING)} AS status",
            "CAST(NULL AS TIMESTAMP) AS leased_until",
            f"{text_literal(stream_fingerprint(self.spec))} AS pipeline_version",
            f"concat_ws('/', {row}, sha2(payload, 256), copy) AS {_PLACE}",
        )

    def _form(self, rows: DataFrame, stage: str) -> str:
        """Return SQL for the payload format: that of the message, of a line that could not be read, or `ROW`."""
        if "_raw" not in rows.columns:
            return text_literal(ROW)
        form = line_format_of if stage == DECODE else payload_format_of
        forms = [text_literal(form(self.spec, number)) for number in range(len(self.spec.sources))]
        if ORIGIN_FIELD not in source_fields(rows):
            return forms[0]
        return f"CASE {' '.join(f'WHEN origin = {number} THEN {one}' for number, one in enumerate(forms))} END"


def _with_message_facts(rows: DataFrame, error: str) -> DataFrame:
    """Return bad rows with the facts known of their messages; equal rows without a source position are numbered."""
    columns, knows_origin = set(rows.columns), ORIGIN_FIELD in source_fields(rows)
    source = "_source" if "_source" in columns else _NO_SOURCE
    own = ", ".join(quote(name) for name in rows.columns if name != error)
    raw = "_raw" if "_raw" in columns else f"to_binary(to_json(struct({own})), 'utf-8')"
    moment, more = f"{source}.timestamp", f", {source}.{ORIGIN_FIELD}" if knows_origin else ""
    described = rows.selectExpr(
        f"{quote(error)} AS error",
        f"{source}.topic AS source_id",
        f"to_json(struct({source}.partition, {source}.offset, {source}.message_id{more})) AS position",
        f"{source}.key AS message_key",
        f"to_json({source}.headers) AS headers",
        f"{raw} AS payload",
        f"coalesce(_event_ts, {moment}) AS event_ts" if "_event_ts" in columns else f"{moment} AS event_ts",
        f"coalesce({source}.{ORIGIN_FIELD}, 0) AS origin" if knows_origin else "0 AS origin",
    )
    if "_source" in columns:
        return described.selectExpr("*", "CAST(NULL AS STRING) AS copy")
    number = "row_number() OVER (PARTITION BY sha2(payload, 256) ORDER BY sha2(payload, 256))"
    return described.selectExpr("*", f"nullif({number}, 1) AS number").selectExpr("*", "CAST(number AS STRING) AS copy")


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), frames)


def _distinct(frames: Sequence[DataFrame]) -> DataFrame:
    return _union(frames).dropDuplicates(["id"])
