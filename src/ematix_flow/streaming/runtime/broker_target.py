"""A broker as the target of a stream: rows become messages, sent once the batch is decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ematix_flow.backends.catalog import backend_for
from ematix_flow.config.resolve import resolve
from ematix_flow.contract.stream import BrokerJob, BrokerSink, Offsets, TransactionTokens
from ematix_flow.contract.write import Commit, Counts, WriteResult
from ematix_flow.declare.connections.brokers import BrokerConnection, payload_format
from ematix_flow.declare.streams.spec import BrokerTarget, StreamSpec
from ematix_flow.foundation import fault
from ematix_flow.foundation.errors import ConnectionFailed, MissingColumn, PlanError, Unsupported
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.messages.encode import encode, subject_of
from ematix_flow.messages.registries.registry import SchemaRegistry, registry_of
from ematix_flow.sql.spark_text import quote, text_literal
from ematix_flow.streaming.dlq.commit_coverage import NOTHING, CommitCoverage
from ematix_flow.streaming.dlq.letters import FailedRows, split_failed
from ematix_flow.streaming.dlq.row_failures import FALLIBLE, mark_unencodable
from ematix_flow.streaming.runtime.checkpoint_folder import CheckpointFolder
from ematix_flow.streaming.runtime.fitting import WRONG
from ematix_flow.streaming.runtime.table_writer import HIDDEN
from ematix_flow.streaming.runtime.targets import CARRIED, STAGE, FittedRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ORIGIN = ("_flow_topic", "_flow_partition")
_WHOLE = "_flow_whole"
_LENGTH = "coalesce(octet_length({}), 0)"
_HEADERS = (
    "coalesce(aggregate(headers, 0, "
    "(sum, one) -> sum + 10 + octet_length(one.key) + coalesce(octet_length(one.value), 0)), 0)"
)


@dataclass
class BrokerTargetWriter:
    """A writer to a broker; with `exactly_once` in one transaction per input partition, offsets included."""

    spec: StreamSpec
    target: BrokerTarget
    folder: CheckpointFolder
    generation: str
    exactly_once: bool = False
    group: str | None = None
    has_stage: bool = False
    sink: BrokerSink = field(init=False)
    registry: SchemaRegistry | None = field(init=False)
    payload: str = field(init=False)

    def __post_init__(self) -> None:
        connection = resolve(self.target.connection).connection
        backend = backend_for(connection)
        if backend.broker_sink is None:
            raise Unsupported(f"{backend.title} takes no messages", hint="give the target a table=")
        self.sink = backend.broker_sink(connection)
        try:
            self.sink.check(self.target.place)
        except ConnectionFailed:
            if not self.spec.is_tolerant:  # a tolerant stream starts with the target behind
                raise
        self.payload = payload_format(connection) or self.target.payload
        self.registry = registry_of(connection, find=lambda name: resolve(name).connection)

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def _topic(self) -> str:
        """Return the name for the schema registry."""
        connection, place = resolve(self.target.connection).connection, self.target.place
        return connection.subject_topic(place) if isinstance(connection, BrokerConnection) else place

    def fit(self, rows: DataFrame, open_until: ExitStack, *, splits: bool) -> FittedRows:
        key = self.target.key_column
        if key is not None and key not in rows.columns:
            raise MissingColumn(
                f"message_key_column names {key!r}, which the rows do not have", hint=did_you_mean(key, rows.columns)
            )
        if self.exactly_once and HIDDEN not in rows.columns:
            raise PlanError(
                "exactly-once delivery needs to know which message each row comes from, and the transform joins or "
                "aggregates rows",
                hint='make each row of one message, or say delivery="at_least_once"',
            )
        if not splits:
            return FittedRows(self._encoded(rows), rows)
        failed: tuple[FailedRows, ...] = ()
        messages = self._with_size_errors(rows, open_until)
        if self.payload in FALLIBLE and (judged := mark_unencodable(rows, messages, self._encoded)) is not None:
            rows, wrong = split_failed(judged, WRONG, stage=STAGE, target=self.name)
            messages, failed = self._with_size_errors(rows, open_until), (wrong,)
        if self._max_message_bytes is not None:
            heavy = messages.where(f"{WRONG} IS NOT NULL").selectExpr(f"{_WHOLE}.*", WRONG)
            failed = (*failed, FailedRows(heavy, WRONG, STAGE, self.name))
        return FittedRows(messages.where(f"{WRONG} IS NULL").drop(WRONG, _WHOLE), rows, failed)

    def _encoded(self, rows: DataFrame, *, also: Sequence[str] = ()) -> DataFrame:
        """Return the messages of rows, with the columns in `also` unchanged."""
        columns = [name for name in rows.columns if name not in (*CARRIED, *also)]
        if self.exactly_once:
            rows = rows.selectExpr("*", "_source.topic AS _flow_topic", "_source.partition AS _flow_partition")
            also = (*also, *_ORIGIN)
        messages = encode(
            rows, self.payload, key_column=self.target.key_column, columns=columns, carried=also,
            subject=subject_of(self._topic, self.registry), registry=self.registry,
        )  # fmt: skip
        return messages.withColumnsRenamed({"_flow_topic": "topic", "_flow_partition": "partition"})

    def _with_size_errors(self, rows: DataFrame, open_until: ExitStack) -> DataFrame:
        """Return the messages, persisted, with their rows, and with an error for those that are too large."""
        test = "CAST(NULL AS STRING)"
        if self._max_message_bytes is not None:
            weight = f"{_LENGTH.format('key')} + {_LENGTH.format('value')} + {_HEADERS}"
            most = text_literal(f" bytes, and {self.name} takes {self._max_message_bytes}")
            test = (
                f"CASE WHEN {weight} > {self._max_message_bytes} THEN concat('the message has ', {weight}, {most}) END"
            )
        whole = rows.selectExpr("*", f"struct({', '.join(map(quote, rows.columns))}) AS {_WHOLE}")
        judged = self._encoded(whole, also=(_WHOLE,)).selectExpr("*", f"{test} AS {WRONG}").persist()
        open_until.callback(judged.unpersist)
        return judged

    @cached_property
    def _max_message_bytes(self) -> int | None:
        """Return the maximum size of key, value and headers in bytes; None where the broker does not report one."""
        return self.sink.max_message_bytes(self.target.place, exactly_once=self.exactly_once)

    def begin(self, number: int) -> BrokerWrite:
        return BrokerWrite(self.sink, self._job(number), self.exactly_once)

    def without_refused(self, number: int, fitted: FittedRows, open_until: ExitStack) -> None:
        """Return None: messages may be sent already, so that nothing can be tried."""

    def figures(self, number: int, result: WriteResult) -> Mapping[str, int]:
        return {}

    def _job(self, number: int) -> BrokerJob:
        ends: Offsets = (self.folder.ends(number) or [{}])[0] if self.exactly_once else {}
        return BrokerJob(
            self.spec.name, self.spec.writer(self.target, self.generation), number, self.target.place,
            exactly_once=self.exactly_once, group=self.group, ends=ends,
        )  # fmt: skip


@dataclass(frozen=True)
class BrokerWrite:
    """A micro-batch for a broker, which has no stage."""

    sink: BrokerSink
    job: BrokerJob
    exactly_once: bool
    recovered: WriteResult | None = None

    def coverage(self) -> CommitCoverage:
        """Return the partitions committed in a transaction; without transactions none (at least once)."""
        if not self.exactly_once or not isinstance(self.sink, TransactionTokens):
            return NOTHING
        return CommitCoverage(parts=frozenset(self.sink.committed_partitions(self.job)))

    def stage(self, rows: DataFrame) -> MessagesToSend:
        return MessagesToSend(self, rows)


@dataclass(frozen=True)
class MessagesToSend:
    """The messages of a micro-batch before they are sent."""

    write: BrokerWrite
    messages: DataFrame

    def publish(self) -> WriteResult:
        """Send the messages."""
        job = self.write.job
        fault.point("before_publish")
        sent = self.write.sink.send(job, self.messages)
        fault.point("after_publish")
        return WriteResult(job.writer, Commit(job.writer, job.batch + 1), Counts(read=sent))

    def settle(self, result: WriteResult) -> None:
        """Do nothing: there is no stage."""
