"""Stores of dead letters: a table, a topic of the source's broker, or the broker's own dead-lettering."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.catalog import backend_for
from ematix_flow.config.resolve import resolve
from ematix_flow.contract.stream import BrokerJob, BrokerSink, StreamRead, StreamSource
from ematix_flow.declare.loads import LoadSpec
from ematix_flow.declare.strategy import Merge
from ematix_flow.declare.streams.spec import DLQ, StreamSpec, TableTarget
from ematix_flow.foundation.errors import ConfigError, LeaseHeld, RunFailed
from ematix_flow.spool.source import SpoolSource
from ematix_flow.sql.spark_text import text_literal
from ematix_flow.streaming.dlq.commit_coverage import NOTHING, CoverageByTarget, targets_covering
from ematix_flow.streaming.dlq.letters import PARKED, PENDING, RECORDS, DeadLetterStore
from ematix_flow.streaming.dlq.locations import dead_letter_connection, dead_letter_topic
from ematix_flow.streaming.dlq.table import DeadLetterTable
from ematix_flow.streaming.runtime.checkpoint_folder import CheckpointFolder
from ematix_flow.streaming.runtime.fitting import fit_rows
from ematix_flow.streaming.runtime.table_writer import TableWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEYS = ("id",)
_DECIDED = ("status", "leased_until", "attempt")
"""Columns that users and replays set: they stay when the same record is written once more."""
_CONTENT = tuple(name for name in RECORDS.column_names if name not in (*_KEYS, *_DECIDED))


@dataclass
class TableDeadLetterStore:
    """A table of records; a record written twice is stored once."""

    table: TableWriter
    letters: DeadLetterTable
    open_batch: int | None

    @classmethod
    def at(cls, spec: StreamSpec, folder: CheckpointFolder, generation: str) -> TableDeadLetterStore:
        """Return the store in the stream's table of dead letters."""
        connection = dead_letter_connection(spec, folder)
        load = LoadSpec(RECORDS, connection, Merge(_KEYS, _CONTENT, _CONTENT))
        target = TableTarget("dead letters", connection, load, mode="merge")
        own = replace(spec, on_drift="evolve", cdc=None)  # this table may evolve, whatever the stream's tables may do
        return cls(
            TableWriter(own, target, generation, folder.generation_order()),
            DeadLetterTable.of(spec),
            open_batch_of(folder),
        )

    def retract(self, number: int, coverage: CoverageByTarget, target: str | None) -> None:
        """Delete records of this generation only, since a rewind restarts the numbers; parked letters stay."""
        gone: list[str] = []
        handed: dict[str, list[str]] = {}
        for letter in self.letters.of_batch(self.table.generation, number, target):
            kept = targets_covering(letter, coverage)
            if kept and letter.status in (PENDING, PARKED):
                handed[letter.id] = kept
            elif kept == [] and letter.status == PENDING:
                gone.append(letter.id)
        self.letters.rearrange(gone, handed)

    def write(self, number: int, records: DataFrame) -> None:
        """Write the records; the token is only a number here: `forget` deletes the records of an earlier try."""
        own = f"concat(id, '/', {text_literal(self.table.generation)}, '/', batch)"
        letters = records.selectExpr(
            # Without a position, equal rows of different micro-batches would have the same id.
            f"IF(source_id IS NULL AND position = '{{}}', sha2({own}, 256), id) AS id",
            *(name for name in records.columns if name != "id"),
            f"{text_literal(self.table.generation)} AS generation",
        )
        self.table.shape_for(letters.schema)
        last = self.table.last_sequence() or 0
        with ExitStack() as open_until:
            write = self.table.begin(last)
            result = write.recovered
            if result is None:
                staged = write.stage(fit_rows(letters, RECORDS, open_until))
                result = staged.publish()
                staged.settle(result)
        if result.repeated:
            raise LeaseHeld(
                f"another process wrote dead letters of {self.letters.pipeline} at the same time",
                hint="flow runs list shows who runs it; one runner is enough",
            )


@dataclass
class TopicDeadLetterStore:
    """A topic that takes the raw messages, with the facts known of them as headers; at least once."""

    sink: BrokerSink
    topic: str
    writer: str
    stream: str
    open_batch: int | None

    def retract(self, number: int, coverage: CoverageByTarget, target: str | None) -> None:
        """Do nothing: a message that was sent cannot be deleted."""

    def write(self, number: int, records: DataFrame) -> None:
        header_names = (
            "pipeline_name",
            "stage",
            "error",
            "target",
            "source_id",
            "position",
            "pipeline_version",
            "batch",
        )
        ours = ", ".join(
            f"struct('ematix-{name.replace('_', '-')}' AS key, to_binary(coalesce(CAST({name} AS STRING), ''), 'utf-8') "
            "AS value)"
            for name in header_names
        )
        its_own = "coalesce(from_json(headers, 'ARRAY<STRUCT<key: STRING, value: BINARY>>'), array())"
        headers = f"concat({its_own}, array({ours})) AS headers"
        messages = records.selectExpr("message_key AS key", "payload AS value", headers)
        self.sink.send(BrokerJob(self.stream, self.writer, number, self.topic), messages)


@dataclass
class BrokerDeadLetterStore:
    """The source's own broker: messages are rejected with the commit, and it dead-letters them as it is configured."""

    source: SpoolSource
    read: StreamRead
    generation: str
    open_batch: int | None
    _positions: dict[int, set[int]] = field(default_factory=dict)
    """The rejected positions of the current micro-batch."""

    def retract(self, number: int, coverage: CoverageByTarget, target: str | None) -> None:
        """Clear the rejections unless a target has some of the micro-batch: a rejection is for all targets."""
        if all(item == NOTHING for item in coverage.values()):
            self._refuse(number, set())

    def write(self, number: int, records: DataFrame) -> None:
        offsets = records.selectExpr("CAST(get_json_object(position, '$.offset') AS BIGINT) AS offset").collect()
        positions = {row["offset"] for row in offsets}
        if None in positions:
            raise RunFailed(
                f"bad rows of batch {number} do not say which message they come from, so that none can be rejected",
                hint='dlq_store="table" keeps such rows in a table',
            )
        self._refuse(number, self._positions.get(number, set()) | positions)

    def _refuse(self, number: int, positions: set[int]) -> None:
        self._positions = {number: positions}
        self.source.refuse(self.read, sorted(positions), batch=f"{self.generation}-{number}")


def dead_letter_store_of(
    spec: StreamSpec, folder: CheckpointFolder, generation: str, source: StreamSource, read: StreamRead
) -> DeadLetterStore | None:
    """Return the store of this stream's dead letters; None when they are only counted."""
    bad = spec.bad_rows
    if bad.policy != DLQ:
        return None
    if bad.store == "broker":
        if not isinstance(source, SpoolSource):
            raise ConfigError('dlq_store="broker" is for RabbitMQ and Pub/Sub', where=spec.where)
        source.check_dead_lettering(read)
        return BrokerDeadLetterStore(source, read, generation, open_batch_of(folder))
    topic = dead_letter_topic(spec)
    if bad.store == "topic" and topic is None:
        raise ConfigError('dlq_store="topic" needs a Kafka source and dead_letter_topic=', where=spec.where)
    if topic is not None:
        connection: Any = resolve(spec.sources[0].connection).connection
        maker = backend_for(connection).broker_sink
        if maker is None:
            raise AssertionError("Kafka takes messages")
        writer = f"{spec.name}@{generation}::dead letters"
        return TopicDeadLetterStore(maker(connection), topic, writer, spec.name, open_batch_of(folder))
    return TableDeadLetterStore.at(spec, folder, generation)


def open_batch_of(folder: CheckpointFolder) -> int | None:
    """Return the micro-batch that the next start retries; call it before the query runs."""
    return folder.last_planned() if folder.has_open_batch() else None
