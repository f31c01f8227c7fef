"""Where dead letters are kept: a table in a database, a topic of the source's own broker, or where that one puts them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.catalog import backend_for
from ematix_flow.config.resolve import resolve
from ematix_flow.contract.stream import BrokerJob, BrokerSink, StreamRead, StreamSource
from ematix_flow.declare.connections import KafkaConnection, SQLiteConnection
from ematix_flow.declare.loads import LoadSpec
from ematix_flow.declare.strategy import Merge
from ematix_flow.declare.streams.spec import DLQ, StreamSpec, TableTarget
from ematix_flow.engine.streams.dead_letters import RECORDS, Graveyard
from ematix_flow.engine.streams.fitting import fitted
from ematix_flow.engine.streams.folder import StreamFolder
from ematix_flow.engine.streams.tables import TableWriter
from ematix_flow.families.spool.source import SpoolSource
from ematix_flow.foundation.errors import ConfigError, RunFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEYS = ("id",)
_OTHERS = tuple(name for name in RECORDS.column_names if name not in _KEYS)


@dataclass
class TableGraveyard:
    """A table of records; the same record twice is one."""

    table: TableWriter

    @classmethod
    def at(cls, spec: StreamSpec, connection: Any, generation: str) -> TableGraveyard:
        """The table of dead letters behind a connection."""
        load = LoadSpec(RECORDS, connection, Merge(_KEYS, _OTHERS, _OTHERS))
        return cls(TableWriter(spec, TableTarget("dead letters", connection, load, mode="merge"), generation))

    def bury(self, number: int, records: DataFrame) -> int:
        self.table.shape_for(records.schema)
        with ExitStack() as open_until:
            return self.table.write(number, fitted(records, RECORDS, open_until)).counts.read


@dataclass
class TopicGraveyard:
    """A topic that takes the raw messages, with what is known of them as headers."""

    sink: BrokerSink
    topic: str
    writer: str
    stream: str

    def bury(self, number: int, records: DataFrame) -> int:
        told = ("pipeline_name", "stage", "error", "target", "source_id", "position", "pipeline_version", "batch")
        ours = ", ".join(
            f"struct('ematix-{name.replace('_', '-')}' AS key, to_binary(coalesce(CAST({name} AS STRING), ''), 'utf-8') "
            "AS value)"
            for name in told
        )
        its_own = "coalesce(from_json(headers, 'ARRAY<STRUCT<key: STRING, value: BINARY>>'), array())"
        headers = f"concat({its_own}, array({ours})) AS headers"
        messages = records.selectExpr("message_key AS key", "payload AS value", headers)
        return self.sink.send(BrokerJob(self.stream, self.writer, number, self.topic), messages)


@dataclass
class BrokerGraveyard:
    """The source's own broker: the messages are rejected with the commit, and it dead-letters them where it is told to."""

    source: SpoolSource
    read: StreamRead

    def bury(self, number: int, records: DataFrame) -> int:
        asked = records.selectExpr("CAST(get_json_object(position, '$.offset') AS BIGINT) AS offset").collect()
        positions = {row["offset"] for row in asked}
        if None in positions:
            raise RunFailed(
                f"bad rows of batch {number} do not say which message they come from, so that none can be rejected",
                hint='dlq_store="table" keeps such rows in a table',
            )
        self.source.refuse(self.read, sorted(positions))
        return len(asked)


def connection_of_records(spec: StreamSpec, folder: StreamFolder) -> Any:
    """The database that keeps a stream's dead letters: its first target that is one, else a file beside the checkpoint."""
    for target in spec.targets:
        if isinstance(target, TableTarget):
            connection = resolve(target.connection).connection
            backend = backend_for(connection)
            if backend.client is not None and "merge" in backend.strategies and backend.dialect != "spark":
                return connection
    if not isinstance(folder.root, Path):
        raise ConfigError(
            f"{spec.name} has no database for its dead letters, and its checkpoint is in a bucket",
            hint="name a dead_letter_topic, or keep the checkpoint in a folder",
            where=spec.where,
        )
    return SQLiteConnection(name=f"{spec.name}-dead-letters", path=str(folder.root / "dead_letters.db"))


def graveyard_of(
    spec: StreamSpec, folder: StreamFolder, generation: str, source: StreamSource, read: StreamRead
) -> Graveyard | None:
    """Where this stream's dead letters go; None when they are only counted."""
    bad = spec.bad_rows
    if bad.policy != DLQ:
        return None
    if bad.store == "broker":
        if not isinstance(source, SpoolSource):
            raise ConfigError('dlq_store="broker" is for RabbitMQ and Pub/Sub', where=spec.where)
        return BrokerGraveyard(source, read)
    topic = topic_of_records(spec)
    if bad.store == "topic" and topic is None:
        raise ConfigError('dlq_store="topic" needs a Kafka source and dead_letter_topic=', where=spec.where)
    if topic is not None:
        there = resolve(spec.sources[0].connection).connection
        maker = backend_for(there).broker_sink
        if maker is None:
            raise AssertionError("Kafka takes messages")
        return TopicGraveyard(maker(there), topic, f"{spec.name}@{generation}::dead letters", spec.name)
    return TableGraveyard.at(spec, connection_of_records(spec, folder), generation)


def topic_of_records(spec: StreamSpec) -> str | None:
    """The topic that takes a stream's dead letters; None where a table does."""
    bad = spec.bad_rows
    in_a_topic = bad.store in ("auto", "topic") and isinstance(
        resolve(spec.sources[0].connection).connection, KafkaConnection
    )
    return bad.topic if in_a_topic else None
