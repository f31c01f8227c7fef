"""Collects the rows of a micro-batch that fail, and writes them before anything is published."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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


@dataclass
class _FailedRows:
    """Rows that were set aside in one step."""

    records: DataFrame
    target: str | None
    counted: Callable[[], int | None]
    """Returns their number without a Spark job, once the good rows beside them were read; None where not counted."""
    is_kept: bool = False


@dataclass
class DeadLetterCollector:
    """The bad rows of the current micro-batch."""

    spec: StreamSpec
    store: DeadLetterStore | None
    """None where bad rows are only counted."""
    letters: int = field(default=0, init=False)
    """The number of letters of the current micro-batch so far."""
    _aside: list[_FailedRows] = field(default_factory=list, init=False)
    _decoded: list[DataFrame] = field(default_factory=list, init=False)
    """The decoded rows of every source."""
    _total: int | None = field(default=None, init=False)
    _has_failed: bool = field(default=False, init=False)
    """Whether the counts observed while rows were read may be incomplete."""

    def begin(self) -> None:
        """Start a micro-batch, or a new try of one."""
        self._aside, self._decoded, self._total, self.letters, self._has_failed = [], [], None, 0, False

    def discard_counts(self) -> None:
        """Discard the observed counts: the first action over the rows failed, or did not read all of them."""
        self._has_failed = True

    def decoded(self, rows: DataFrame, counted: Callable[[], int | None]) -> DataFrame:
        """Return the rows of a source without those that have an `_error`; `counted` returns how many have one."""
        self._decoded.append(rows)
        if "_error" not in rows.columns:
            return rows
        self._aside.append(_FailedRows(self._bad(rows, "_error", "decode", None), None, counted))
        return rows.where("_error IS NULL").drop("_error")

    def separate_batch(self) -> DeadLetterCollector:
        """Return a collector for another micro-batch, whose rows do not count against the current one."""
        return DeadLetterCollector(self.spec, self.store)

    def is_retry(self, number: int) -> bool:
        """Return whether an earlier try of the micro-batch may have left letters."""
        return self.store is not None and self.store.open_batch == number

    def total(self) -> int:
        """Return the number of messages of the micro-batch, good and bad; count them with Spark the first time."""
        if self._total is None:
            if not self._decoded:
                raise AssertionError("nothing was decoded yet")
            self._total = sum(rows.count() for rows in self._decoded)
        return self._total

    def split(
        self, rows: DataFrame, column: str, *, stage: str, target: str | None = None, hidden: Sequence[str] = ()
    ) -> DataFrame:
        """Return the rows without an error in this column; set the others aside, to be stored before any publish.

        They are counted while the good ones are read. `hidden` columns are left out of the letters.
        """
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        name, watch = quote(column), Observation()
        self._aside.append(
            _FailedRows(
                self._bad(rows.drop(*hidden), column, stage, target), target, lambda: observed_counts(watch).get("bad")
            )
        )
        watched = rows.observe(watch, f.count(f.col(name)).alias("bad"))
        return watched.where(f"{name} IS NULL").drop(column)

    def set_aside(self, rows: DataFrame, column: str, *, stage: str, target: str | None = None) -> None:
        """Set aside rows that all have an error in this column; discard the counts, as a job may have failed."""
        self.discard_counts()
        self._aside.append(_FailedRows(self._bad(rows, column, stage, target), target, lambda: None))

    def _bad(self, rows: DataFrame, column: str, stage: str, target: str | None) -> DataFrame:
        return self._records(rows.where(f"{quote(column)} IS NOT NULL"), column, stage, target)

    def _records(self, rows: DataFrame, error: str, stage: str, target: str | None) -> DataFrame:
        target_text = "CAST(NULL AS STRING)" if target is None else text_literal(target)
        row = f"source_id, position, {text_literal(stage)}"
        identity = f"concat_ws('/', {text_literal(self.spec.name)}, {row}, {target_text}, sha2(payload, 256), copy)"
        return _with_message_facts(rows, error).selectExpr(
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
        form = line_format_of if stage == "decode" else payload_format_of
        forms = [text_literal(form(self.spec, number)) for number in range(len(self.spec.sources))]
        if ORIGIN_FIELD not in source_fields(rows):
            return forms[0]
        return f"CASE {' '.join(f'WHEN origin = {number} THEN {one}' for number, one in enumerate(forms))} END"

    def store_letters(self, number: int, coverage: CoverageByTarget | None = None, *, target: str | None = None) -> int:
        """Store the records set aside and not stored yet, before anything is published; return the number of letters.

        `having` is given when the micro-batch may be a retry. Records of an earlier try that this one does not produce
        are then deleted first, unless their target has the micro-batch from that try. Both happen before any other
        target publishes: a process that crashes in between leaves a micro-batch that is retried, and runs this again.
        """
        if coverage is not None and is_fully_covered(coverage):
            return 0
        fresh = self._fresh(self._aside)
        records = uncovered_records(_distinct(fresh), coverage or {}) if fresh and not _union(fresh).isEmpty() else None
        if self.store is not None and coverage is not None:
            self.store.retract(number, coverage, target)
        return self._write(number, records)

    def store_read_letters(self, number: int, target: str | None) -> int:
        """Store the records set aside for a target, or for all, before it publishes; return the number of letters.

        The good rows must have been read: where the observed counts are zero, no Spark job is run.
        """
        of_target = [item for item in self._aside if item.target in (None, target)]
        counts = [(item, None if self._has_failed else item.counted()) for item in of_target if not item.is_kept]
        self._fresh([item for item, count in counts if count == 0])
        records = self._fresh([item for item, count in counts if count != 0])
        if not records or (not any(count for _, count in counts) and _union(records).isEmpty()):
            return 0
        return self._write(number, _distinct(records))

    def _fresh(self, parts: Sequence[_FailedRows]) -> list[DataFrame]:
        """Return the records that are not stored yet, and mark them as stored."""
        fresh = [item for item in parts if not item.is_kept]
        for item in fresh:
            item.is_kept = True
        return [item.records for item in fresh]

    def _write(self, number: int, records: DataFrame | None) -> int:
        letters = records.count() if records is not None else 0
        if records is None or not letters:
            return 0
        self._check_bad_fraction(number)
        if self.store is not None:
            self.store.write(number, records.drop(_PLACE).selectExpr("*", f"CAST({number} AS BIGINT) AS batch"))
        self.letters += letters
        return letters

    def _check_bad_fraction(self, number: int) -> None:
        most = self.spec.bad_rows.max_fraction
        if most is None or not self._decoded:
            return
        every = [item.records for item in self._aside]
        bad, total = _distinct(every).select(_PLACE).distinct().count(), self.total()
        if bad > most * total:
            raise Brake(
                f"{bad} of {total} messages of batch {number} are bad, more than max_bad_fraction={most:g} allows; "
                "it was not finished",
                hint="look at the messages; correct their producer, or raise max_bad_fraction",
            )


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
