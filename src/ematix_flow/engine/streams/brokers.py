"""A broker as the target of a stream: rows become messages, sent once the batch is decoded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ematix_flow.backends.catalog import backend_for
from ematix_flow.config.resolve import resolve
from ematix_flow.contract.stream import BrokerJob, BrokerSink, Offsets
from ematix_flow.declare.streams.spec import BrokerTarget, StreamSpec
from ematix_flow.engine.streams.dead_letters import DeadLetters
from ematix_flow.engine.streams.folder import StreamFolder
from ematix_flow.engine.streams.tables import HIDDEN
from ematix_flow.engine.streams.targets import CARRIED
from ematix_flow.families.messages.encode import encode, subject_of
from ematix_flow.families.messages.registry import Registry, registry_of
from ematix_flow.foundation import fault
from ematix_flow.foundation.errors import MissingColumn, PlanError, Unsupported
from ematix_flow.foundation.names import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ORIGIN = ("_flow_topic", "_flow_partition")


@dataclass
class BrokerTargetWriter:
    """Sends; with `exactly_once` in one transaction per input partition, offsets included."""

    spec: StreamSpec
    target: BrokerTarget
    folder: StreamFolder
    generation: str
    exactly_once: bool = False
    group: str | None = None
    has_stage: bool = False
    sink: BrokerSink = field(init=False)
    registry: Registry | None = field(init=False)
    payload: str = field(init=False)

    def __post_init__(self) -> None:
        connection = resolve(self.target.connection).connection
        backend = backend_for(connection)
        if backend.broker_sink is None:
            raise Unsupported(f"{backend.title} takes no messages", hint="give the target a table=")
        self.sink = backend.broker_sink(connection)
        self.sink.check(self.target.place)
        self.payload = getattr(connection, "payload_format", None) or self.target.payload
        self.registry = registry_of(connection, find=lambda name: resolve(name).connection)

    @property
    def name(self) -> str:
        return self.target.name

    def fit(self, rows: DataFrame, open_until: ExitStack, dead: DeadLetters | None) -> DataFrame:
        key = self.target.key_column
        if key is not None and key not in rows.columns:
            raise MissingColumn(
                f"message_key_column names {key!r}, which the rows do not have", hint=did_you_mean(key, rows.columns)
            )
        kept = [name for name in rows.columns if name not in CARRIED]
        if self.exactly_once:
            if HIDDEN not in rows.columns:
                raise PlanError(
                    "exactly-once delivery needs to know which message each row comes from, and the transform joins or "
                    "aggregates rows",
                    hint='make each row of one message, or say delivery="at_least_once"',
                )
            rows = rows.selectExpr("*", "_source.topic AS _flow_topic", "_source.partition AS _flow_partition")
        messages = encode(
            rows, self.payload, key_column=key, columns=kept, carried=_ORIGIN if self.exactly_once else (),
            subject=subject_of(self.target.place, self.registry), registry=self.registry,
        )  # fmt: skip
        return messages.withColumnsRenamed({"_flow_topic": "topic", "_flow_partition": "partition"})

    def write(self, number: int, fitted: DataFrame, staged: Callable[[], None]) -> int:
        staged()
        fault.point("before_publish")
        ends: Offsets = (self.folder.ends(number) or [{}])[0] if self.exactly_once else {}
        job = BrokerJob(
            self.spec.name, self.spec.writer(self.target, self.generation), number, self.target.place,
            exactly_once=self.exactly_once, group=self.group, ends=ends,
        )  # fmt: skip
        sent = self.sink.send(job, fitted)
        fault.point("after_publish")
        return sent
