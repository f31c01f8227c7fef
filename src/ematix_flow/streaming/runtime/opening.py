"""The assembly of a stream: resolves its names, rejects what cannot work, and connects its parts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.catalog import backend_for
from ematix_flow.config.resolve import resolve
from ematix_flow.contract import stream as contract
from ematix_flow.contract.backend import Backend
from ematix_flow.contract.delivery import stream_delivery
from ematix_flow.contract.stream import StreamRead, StreamSource
from ematix_flow.declare.connections.brokers import consumer_group, payload_format
from ematix_flow.declare.connections.lakes import files_format
from ematix_flow.declare.engine import LOCAL, SAIL, EngineOptions
from ematix_flow.declare.streams.spec import EXACTLY_ONCE, FAIL, BrokerTarget, StreamSpec, TableTarget
from ematix_flow.engine.session import session
from ematix_flow.engine.session.engine_choice import choose_engine
from ematix_flow.foundation.errors import ConnectionFailed, FlowError, PlanError, RunFailed, Unsupported
from ematix_flow.messages.decode import JARS
from ematix_flow.storage.paths import engine_uri
from ematix_flow.streaming.cdc.changes import ChangeProcessor
from ematix_flow.streaming.dlq.letters import DeadLetters
from ematix_flow.streaming.dlq.stores import dead_letter_store_of
from ematix_flow.streaming.runtime.backlog import Backlog
from ematix_flow.streaming.runtime.batch_barrier import BatchBarrier
from ematix_flow.streaming.runtime.broker_target import BrokerTargetWriter
from ematix_flow.streaming.runtime.checkpoint_folder import CheckpointFolder
from ematix_flow.streaming.runtime.decoding import Decoder, decoder_of
from ematix_flow.streaming.runtime.micro_batch import MicroBatch
from ematix_flow.streaming.runtime.processing import BatchProcessor
from ematix_flow.streaming.runtime.source_union import union_sources
from ematix_flow.streaming.runtime.table_writer import TableWriter
from ematix_flow.streaming.runtime.targets import TableTargetWriter, TargetWriter
from ematix_flow.streaming.runtime.transform import Transform
from ematix_flow.streaming.state.idle_trigger import FOLDER as TICKS
from ematix_flow.streaming.state.idle_trigger import IdleTrigger
from ematix_flow.streaming.state.opening import stateful_processor_of
from ematix_flow.streaming.state.processor import StatefulProcessor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass
class OpenStream:
    """A stream that is ready to start."""

    spec: StreamSpec
    spark: SparkSession
    folder: CheckpointFolder
    sources: list[tuple[StreamSource, StreamRead]]
    work: MicroBatch
    once: bool
    processor: StatefulProcessor | None = None
    idle_trigger: IdleTrigger | None = None

    def start(self) -> StreamingQuery:
        """Start the query."""
        # A micro-batch stores its own error, which is reported once; the Py4J bridge would log it with its stack, too.
        logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
        self.spark.conf.set("spark.sql.streaming.pollingDelay", f"{self.spec.idle_pause_ms}ms")
        writer = self._frame().writeStream.foreachBatch(self.work)
        writer = writer.option("checkpointLocation", engine_uri(self.folder.spark)).queryName(self.spec.name)
        trigger = self.spec.trigger
        if self.once or trigger == "once":
            writer = writer.trigger(availableNow=True)
        elif trigger:
            writer = writer.trigger(processingTime=trigger)
        return writer.start()

    def _frame(self) -> DataFrame:
        frames = [source.frame(self.spark, read) for source, read in self.sources]
        ticks = [self.idle_trigger.frame(self.spark)] if self.idle_trigger is not None else []
        if len(frames) + len(ticks) > 1:
            for decoder, frame in zip(self.work.decoders, frames, strict=True):
                decoder.columns = frame.columns
        return union_sources([*frames, *ticks])

    def has_more(self) -> bool:
        """Return whether a source that drains only a part of its data per query has more."""
        return any(source.has_more(read) for source, read in self.sources)

    def translated(self, failure: Exception) -> FlowError | None:
        """Return a failure of Spark's as an error of ours, where a source can explain it."""
        errors = (source.translated(failure) for source, _ in self.sources)
        return self.loss_in(failure) or next((one for one in errors if one is not None), None)

    def loss_in(self, failure: Exception) -> FlowError | None:
        """Return a failure of Spark's as the loss of messages that it reports; None where it is another failure."""
        if not any(source.is_loss_error(failure) for source, _ in self.sources):
            return None
        last = self.folder.last_committed()
        ends = (self.folder.ends(last) if last is not None else []) or [{} for _ in self.sources]
        lost = [
            item for (source, read), end in zip(self.sources, ends, strict=False) for item in source.lost(read, end)
        ]
        details = "; ".join(
            f"{item.part}: {item.rows if item.rows is not None else 'an unknown number of'} message(s) from "
            f"{item.first_wanted}, kept from {item.first_kept or 'nowhere'} on"
            for item in lost
        )
        return PlanError(
            f"the source no longer keeps messages that {self.spec.name} has not read ({details or 'it cannot tell which'})",
            hint=f"go on behind the gap, knowingly: flow stream rewind {self.spec.name} --to earliest",
        )

    def close(self) -> None:
        """Close the resources of all parts."""
        for source, _ in self.sources:
            source.close()
        if self.work.transform is not None:
            self.work.transform.close()
        if self.processor is not None:
            self.processor.close()
        for target in self.work.targets:
            if isinstance(target, TableTargetWriter):
                target.table.close()


def open_stream(spec: StreamSpec, barrier: BatchBarrier, *, still_ours: Callable[[], None], once: bool) -> OpenStream:
    """Resolve the names, check them, start the session, and assemble the parts."""
    folder = CheckpointFolder.of(spec)
    _refuse_other_sources(spec, folder)
    generation = folder.prepare()
    drains = once or spec.trigger == "once"
    sources = [source_of(spec, number, folder, once=drains) for number in range(len(spec.sources))]
    with ExitStack() as on_error:  # each further start would leave a client open
        for source, _, _ in sources:
            on_error.callback(source.close)
        opened = _assemble(spec, barrier, sources, folder, generation, still_ours=still_ours, once=once)
        on_error.pop_all()
    return opened


def _assemble(
    spec: StreamSpec, barrier: BatchBarrier, sources: list[tuple[StreamSource, StreamRead, Backend]], folder: CheckpointFolder,
    generation: str, *, still_ours: Callable[[], None], once: bool,
) -> OpenStream:  # fmt: skip
    for source, read, _ in sources:
        source.check(read)
    jars = jars_of(spec, [backend for _, _, backend in sources]) | folder.jars
    spark = session.spark_session(jars, engine=engine_of(spec))

    def check_ours() -> None:
        still_ours()
        folder.require_generation(generation)

    processor = stateful_processor_of(spec, folder, generation)
    dead_letters, first = None, sources[0]
    if spec.bad_rows.policy != FAIL:
        dead_letters = DeadLetters(spec, dead_letter_store_of(spec, folder, generation, first[0], first[1]))
    decoders = [decoder_of(spec, source, folder, number) for number, (source, _, _) in enumerate(sources)]
    targets = [writer_of(spec, target, folder, generation, since=folder.generation_order()) for target in spec.targets]
    _refuse_older(spec, folder, targets)
    work = MicroBatch(
        spec=spec,
        decoders=decoders,
        transform=Transform(spec) if spec.transform_sql or spec.lookups else None,
        targets=targets,
        dead_letters=dead_letters,
        backlog=Backlog(folder.root / "behind"),
        barrier=barrier,
        still_ours=check_ours,
        processing=processor or processing_of(spec, decoders[0]),
        defers_letters=True,
    )
    ticks = IdleTrigger(spec, processor, folder.root / TICKS) if processor is not None else None
    return OpenStream(
        spec, spark, folder, [(source, read) for source, read, _ in sources], work, once, processor, ticks
    )


def processing_of(spec: StreamSpec, decoder: Decoder) -> BatchProcessor | None:
    """Return the row processing beyond SQL that keeps no state; None where there is none."""
    return ChangeProcessor(spec, decoder) if spec.cdc is not None else None


def engine_of(spec: StreamSpec) -> EngineOptions:
    """Return the engine of the query: a session on this machine or on a cluster, with this process as the driver."""
    choice = choose_engine(spec.engine)
    if choice.is_local:
        return EngineOptions(LOCAL)
    if choice.engine == SAIL or choice.is_remote:
        raise Unsupported(
            f"{spec.name}: a stream cannot run on {choice.display}, because its driver is this process ({choice.reason})",
            hint='use engine="local", or a cluster by spark:// or k8s://',
            where=spec.where,
        )
    return spec.engine


def _refuse_other_sources(spec: StreamSpec, folder: CheckpointFolder) -> None:
    """Raise where the number of sources changed: Spark finds them by order, and the idle trigger is one more source."""
    last = folder.last_planned()
    try:
        known = len(folder.ends(last)) if last is not None else 0
    except RunFailed:  # the query rejects a damaged entry, with a hint
        return
    wanted = len(spec.sources) + (spec.window is not None or spec.join is not None)
    if known and known != wanted:
        raise PlanError(
            f"{spec.name} reads {wanted} source(s), and its checkpoint was made with {known}",
            hint=f"begin anew: flow stream rewind {spec.name} --to earliest, or name another checkpoint=",
            where=spec.where,
        )


def source_of(
    spec: StreamSpec, number: int, folder: CheckpointFolder, *, once: bool
) -> tuple[StreamSource, StreamRead, Backend]:
    """Return one source, its read options and its backend; after a rewind the folder's metadata has the start."""
    declared = spec.sources[number]
    connection = resolve(declared.connection).connection
    backend = backend_for(connection)
    if backend.stream_source is None:
        raise Unsupported(f"{backend.title} cannot be the source of a stream", where=spec.where)
    start = folder.start_at(number) or spec.start
    source = backend.stream_source(connection)
    options: dict[str, Any] = {"drain": True} if once else {}
    if not source.envelopes and spec.fields:
        options["fields"] = spec.fields
    wanted = {"csv": declared.csv_read_options, "json_lines": declared.json_read_options}
    if format_options := wanted.get(files_format(connection) or ""):
        options["read_options"] = format_options
    read = StreamRead(
        spec.name,
        declared.query,
        str(folder.root),
        start=start,
        max_rows=spec.max_rows_per_batch,
        options=options,
        number=number,
    )
    return source, read, backend


def jars_of(spec: StreamSpec, sources: list[Backend]) -> set[str]:
    """Return the jars that Spark needs for sources, targets, lookups and payloads."""
    named = [target.connection for target in spec.targets] + [item.connection for item in spec.lookups.values()]
    used = [*sources, *(backend_for(resolve(item).connection) for item in named)]
    jars = {jar for backend in used for jar in backend.jars}
    brokers = [target for target in spec.targets if isinstance(target, BrokerTarget)]
    ends = [*(source.connection for source in spec.sources), *(target.connection for target in brokers)]
    payloads = {payload_format(resolve(item).connection) for item in ends}
    payloads |= {spec.payload, *(target.payload for target in brokers)}
    return jars | {jar for payload in payloads for jar in JARS.get(str(payload), ())}


def _refuse_older(spec: StreamSpec, folder: CheckpointFolder, targets: Sequence[TargetWriter]) -> None:
    """Raise for a checkpoint older than its targets: Spark plans a micro-batch before it is written."""
    planned = folder.last_planned()
    for target in targets:
        if isinstance(target, TableTargetWriter):
            try:
                target.table.refuse_older(-1 if planned is None else planned, target.table.last_sequence())
            except ConnectionFailed:
                if not spec.is_tolerant:
                    raise


def writer_of(
    spec: StreamSpec, target: Any, folder: CheckpointFolder, generation: str, *, since: int | None = None
) -> TargetWriter:
    """Return the writer to one target; without `since` it writes beside the stream, and is not fenced."""
    if isinstance(target, TableTarget):
        return TableTargetWriter(TableWriter(spec, target, generation, since))
    if not isinstance(target, BrokerTarget):
        raise AssertionError(f"an unknown target: {target!r}")
    source, target_connection = (resolve(item).connection for item in (spec.sources[0].connection, target.connection))
    exactly = spec.delivery == EXACTLY_ONCE
    if exactly and stream_delivery(backend_for(source), backend_for(target_connection)) != contract.EXACTLY_ONCE:
        raise Unsupported('delivery="exactly_once" between brokers is for Kafka to Kafka', where=spec.where)
    return BrokerTargetWriter(
        spec, target, folder, generation, exactly_once=exactly, group=consumer_group(source) or spec.name
    )
