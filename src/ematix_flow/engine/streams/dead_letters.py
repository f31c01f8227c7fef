"""Messages that cannot be decoded, transformed or written: set aside row by row, and kept with the batch's token."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Protocol

from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import BigInt, Bytes, Column, Integer, String, Text, TimestampTZ
from ematix_flow.engine.fingerprint import stream_fingerprint
from ematix_flow.engine.streams.decoding import payload_of
from ematix_flow.families.lake.session import quote, text
from ematix_flow.foundation.errors import Brake

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
    ),
)


class Graveyard(Protocol):
    """Where the records go: a table, or a topic."""

    def bury(self, number: int, records: DataFrame) -> int:
        """Keep the records of one micro-batch, once; how many."""


@dataclass
class DeadLetters:
    """The bad rows of the micro-batch at work."""

    spec: StreamSpec
    store: Graveyard | None
    """None where bad rows are only counted."""
    _aside: list[DataFrame] = field(default_factory=list)
    _decoded: DataFrame | None = None

    def aside(self, rows: DataFrame, *, stage: str) -> DataFrame:
        """The rows without those that say what is wrong with them."""
        self._aside, self._decoded = [], rows
        return self.split(rows, "_error", stage=stage) if "_error" in rows.columns else rows

    def split(self, rows: DataFrame, column: str, *, stage: str, target: str | None = None) -> DataFrame:
        """The rows without a fault, which is in this column; the others are kept for the end of the batch."""
        name = quote(column)
        self._aside.append(self._records(rows.where(f"{name} IS NOT NULL"), name, stage, target))
        return rows.where(f"{name} IS NULL").drop(column)

    def _records(self, rows: DataFrame, error: str, stage: str, target: str | None) -> DataFrame:
        there = set(rows.columns)
        source = (
            "_source"
            if "_source" in there
            else "CAST(NULL AS STRUCT<topic: STRING, partition: INT, offset: BIGINT, key: BINARY, headers: ARRAY<STRUCT<key: STRING, value: BINARY>>, message_id: STRING, timestamp: TIMESTAMP>)"
        )
        raw = "_raw" if "_raw" in there else "to_binary(to_json(struct(*)), 'utf-8')"
        said = "CAST(NULL AS STRING)" if target is None else text(target)
        position = f"to_json(struct({source}.partition, {source}.offset, {source}.message_id))"
        identity = f"concat_ws('/', {text(self.spec.name)}, {source}.topic, {position}, {text(stage)}, {said}, sha2({raw}, 256))"
        return rows.selectExpr(
            f"sha2({identity}, 256) AS id",
            f"{text(self.spec.name)} AS pipeline_name",
            f"{text(stage)} AS stage",
            f"{error} AS error",
            f"{said} AS target",
            f"{source}.topic AS source_id",
            f"{position} AS position",
            f"{source}.key AS message_key",
            f"to_json({source}.headers) AS headers",
            f"{raw} AS payload",
            f"{text(payload_of(self.spec))} AS payload_format",
            f"coalesce(_event_ts, {source}.timestamp) AS event_ts"
            if "_event_ts" in there
            else f"{source}.timestamp AS event_ts",
            "current_timestamp() AS failed_at",
            "1 AS attempt",
            f"{text(PENDING)} AS status",
            "CAST(NULL AS TIMESTAMP) AS leased_until",
            f"{text(stream_fingerprint(self.spec))} AS pipeline_version",
        )

    def settle(self, number: int) -> int:
        """Keep what was set aside, before anything is published; how many rows."""
        if not self._aside:
            return 0
        records = reduce(lambda one, other: one.unionByName(other), self._aside)
        records = records.dropDuplicates(["id"]).selectExpr("*", f"CAST({number} AS BIGINT) AS batch")
        bad = self._counted(records, number)
        if self.store is not None and bad:
            self.store.bury(number, records)
        return bad

    def _counted(self, records: DataFrame, number: int) -> int:
        bad, most = records.count(), self.spec.bad_rows.max_fraction
        if most is None or not bad or self._decoded is None:
            return bad
        total = self._decoded.count()
        if bad / total > most:
            raise Brake(
                f"{bad} of {total} messages of batch {number} are bad, more than max_bad_fraction={most:g} allows; "
                "nothing was published",
                hint="look at the messages; correct their producer, or raise max_bad_fraction",
            )
        return bad
