"""Messages that cannot be decoded, transformed or written: set aside row by row, and kept before anything is published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Protocol

from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import BigInt, Bytes, Column, Integer, String, Text, TimestampTZ
from ematix_flow.engine.fingerprint import stream_fingerprint
from ematix_flow.engine.streams.decoding import line_of, payload_of
from ematix_flow.engine.streams.taken import Having, is_done, still_open
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
        Column(String(64), True, False, "generation"),
    ),
)
ROW = "row"
"""The form of a payload that is no message: a row as SQL made it of several, in JSON."""
_PLACE = "_flow_place"
"""Which row of the micro-batch a record is about, whoever refuses it."""
_OF_A_MESSAGE = ("source_id", "position", "message_key", "headers", "payload")
_NO_SOURCE = (
    "CAST(NULL AS STRUCT<topic: STRING, partition: INT, offset: BIGINT, key: BINARY, "
    "headers: ARRAY<STRUCT<key: STRING, value: BINARY>>, message_id: STRING, timestamp: TIMESTAMP>)"
)


class Graveyard(Protocol):
    """Where the records go: a table, a topic, or the source's own broker."""

    open_batch: int | None
    """The micro-batch that an earlier process began and did not finish, and may have left records of."""

    def forget(self, number: int, having: Having, target: str | None) -> None:
        """Drop what an earlier try of a micro-batch left here, of one target or of all, and no target holds on to."""

    def bury(self, number: int, records: DataFrame) -> None:
        """Keep these records of a micro-batch beside those that are here."""


@dataclass
class DeadLetters:
    """The bad rows of the micro-batch at work."""

    spec: StreamSpec
    store: Graveyard | None
    """None where bad rows are only counted."""
    letters: int = field(default=0, init=False)
    """Of the micro-batch at work, so far."""
    _aside: list[DataFrame] = field(default_factory=list, init=False)
    _kept: int = field(default=0, init=False)
    """How many of these are kept already."""
    _decoded: list[DataFrame] = field(default_factory=list, init=False)
    """Of every source."""
    _total: int | None = field(default=None, init=False)

    def begin(self) -> None:
        """A micro-batch, or a new try of one."""
        self._aside, self._decoded, self._total, self._kept, self.letters = [], [], None, 0, 0

    def aside(self, rows: DataFrame, *, stage: str) -> DataFrame:
        """The rows of a source without those that say what is wrong with them."""
        self._decoded.append(rows)
        return self.split(rows, "_error", stage=stage) if "_error" in rows.columns else rows

    def apart(self) -> DeadLetters:
        """For rows of another micro-batch, which do not count against the one at work."""
        return DeadLetters(self.spec, self.store)

    def is_done_again(self, number: int) -> bool:
        """Whether an earlier try of the micro-batch may have left letters."""
        return self.store is not None and self.store.open_batch == number

    def total(self) -> int:
        """How many messages the micro-batch has, good and bad."""
        if self._total is None:
            if not self._decoded:
                raise AssertionError("nothing was decoded yet")
            self._total = sum(rows.count() for rows in self._decoded)
        return self._total

    def split(self, rows: DataFrame, column: str, *, stage: str, target: str | None = None) -> DataFrame:
        """The rows without a fault, which is in this column; the others are kept before anything is published."""
        name = quote(column)
        self._aside.append(self._records(rows.where(f"{name} IS NOT NULL"), column, stage, target))
        return rows.where(f"{name} IS NULL").drop(column)

    def _records(self, rows: DataFrame, error: str, stage: str, target: str | None) -> DataFrame:
        said = "CAST(NULL AS STRING)" if target is None else text(target)
        row = f"source_id, position, {text(stage)}"
        identity = f"concat_ws('/', {text(self.spec.name)}, {row}, {said}, sha2(payload, 256), copy)"
        return _described(rows, error).selectExpr(
            f"sha2({identity}, 256) AS id",
            f"{text(self.spec.name)} AS pipeline_name",
            f"{text(stage)} AS stage",
            "error",
            f"{said} AS target",
            *_OF_A_MESSAGE,
            f"{text(self._form(rows, stage))} AS payload_format",
            "event_ts",
            "current_timestamp() AS failed_at",
            "1 AS attempt",
            f"{text(PENDING)} AS status",
            "CAST(NULL AS TIMESTAMP) AS leased_until",
            f"{text(stream_fingerprint(self.spec))} AS pipeline_version",
            f"concat_ws('/', {row}, sha2(payload, 256), copy) AS {_PLACE}",
        )

    def _form(self, rows: DataFrame, stage: str) -> str:
        """What the payload is: the message, a line that could not be read, or a row."""
        if "_raw" not in rows.columns:
            return ROW
        return line_of(self.spec) if stage == "decode" else payload_of(self.spec)

    def settle(self, number: int, having: Having | None = None, *, target: str | None = None) -> int:
        """Keep what was set aside and is not kept yet, before anything is published without it; how many letters.

        `having` says that the micro-batch may be done again. What an earlier try kept of it and this one does not find is
        forgotten first, unless it is of a target that has the micro-batch from that try. Both happen before any other
        target publishes: whoever dies in between leaves a micro-batch that is done once more, and comes by here again.
        """
        if having is not None and is_done(having):
            return 0
        fresh, self._kept = self._aside[self._kept :], len(self._aside)
        records = still_open(_distinct(fresh), having or {}) if fresh else None
        letters = records.count() if records is not None else 0
        if letters:
            self._brake(number)
        if self.store is not None:
            if having is not None:
                self.store.forget(number, having, target)
            if records is not None and letters:
                self.store.bury(number, records.drop(_PLACE).selectExpr("*", f"CAST({number} AS BIGINT) AS batch"))
        self.letters += letters
        return letters

    def _brake(self, number: int) -> None:
        most = self.spec.bad_rows.max_fraction
        if most is None or not self._decoded:
            return
        bad, total = _distinct(self._aside).select(_PLACE).distinct().count(), self.total()
        if bad > most * total:
            raise Brake(
                f"{bad} of {total} messages of batch {number} are bad, more than max_bad_fraction={most:g} allows; "
                "it was not finished",
                hint="look at the messages; correct their producer, or raise max_bad_fraction",
            )


def _described(rows: DataFrame, error: str) -> DataFrame:
    """What is known of the messages that bad rows come from; equal rows that know no place are numbered."""
    there = set(rows.columns)
    source = "_source" if "_source" in there else _NO_SOURCE
    own = ", ".join(quote(name) for name in rows.columns if name != error)
    raw = "_raw" if "_raw" in there else f"to_binary(to_json(struct({own})), 'utf-8')"
    moment = f"{source}.timestamp"
    made = rows.selectExpr(
        f"{quote(error)} AS error",
        f"{source}.topic AS source_id",
        f"to_json(struct({source}.partition, {source}.offset, {source}.message_id)) AS position",
        f"{source}.key AS message_key",
        f"to_json({source}.headers) AS headers",
        f"{raw} AS payload",
        f"coalesce(_event_ts, {moment}) AS event_ts" if "_event_ts" in there else f"{moment} AS event_ts",
    )
    if "_source" in there:
        return made.selectExpr("*", "CAST(NULL AS STRING) AS copy")
    number = "row_number() OVER (PARTITION BY sha2(payload, 256) ORDER BY sha2(payload, 256))"
    return made.selectExpr("*", f"nullif({number}, 1) AS number").selectExpr("*", "CAST(number AS STRING) AS copy")


def _distinct(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), frames).dropDuplicates(["id"])
