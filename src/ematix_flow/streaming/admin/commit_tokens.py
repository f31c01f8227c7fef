"""The commit tokens of a stream in its targets and dead letters, for comparison with the checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from ematix_flow.backends.catalog import backend_for
from ematix_flow.backends.delta.sink import DeltaSink
from ematix_flow.backends.kafka.transaction_tokens import last_sent, token_groups
from ematix_flow.config.resolve import resolve
from ematix_flow.contract.backend import BatchSink
from ematix_flow.contract.stream import Offsets
from ematix_flow.declare.connections import KafkaConnection
from ematix_flow.declare.streams.spec import DLQ, EXACTLY_ONCE, BrokerTarget, StreamSpec, StreamTarget, TableTarget
from ematix_flow.families.lake.sink import LakeSink
from ematix_flow.families.sql.metadata_tables import COMMITS
from ematix_flow.families.sql.sink import SqlSink
from ematix_flow.foundation.errors import FlowError, MissingColumn, MissingTable
from ematix_flow.foundation.redact import mask
from ematix_flow.streaming.dlq.locations import dead_letter_topic
from ematix_flow.streaming.dlq.table import DeadLetterTable
from ematix_flow.streaming.runtime.checkpoint_folder import CheckpointFolder

LETTERS = "dead letters"
_REPLAY = ".replay-"


@dataclass(frozen=True)
class PartialCommit:
    """The last micro-batch of a writer that commits only some of them: dead letters, or transactions."""

    batch: int | None
    strays: tuple[str, ...] = ()
    """The partitions that end elsewhere than the checkpoint records."""


def table_tokens(spec: StreamSpec, generation: str) -> dict[str, int | str | None]:
    """Return the last sequence (micro-batch number plus one) of each table; None where there is none, or the error."""
    tokens: dict[str, int | str | None] = {}
    for target in spec.targets:
        if isinstance(target, TableTarget):
            try:
                tokens[target.name] = _sink(target).last_sequence(spec.writer(target, generation))
            except FlowError as error:
                tokens[target.name] = mask(error.what)
    return tokens


def other_commits(spec: StreamSpec, folder: CheckpointFolder, generation: str) -> dict[str, PartialCommit | str]:
    """Return how far transactions and dead letters have come, or the error; other brokers keep no tokens."""
    commits: dict[str, PartialCommit | str] = {}
    for target in spec.targets:
        if sends_in_transactions(spec, target):
            try:
                commits[target.name] = _transaction_commit(spec, target, folder, generation)
            except FlowError as error:
                commits[target.name] = mask(error.what)
    if spec.bad_rows.policy == DLQ and spec.bad_rows.store != "broker" and dead_letter_topic(spec) is None:
        try:
            commits[LETTERS] = PartialCommit(_letter_commit(spec, generation))
        except FlowError as error:
            commits[LETTERS] = mask(error.what)
    return commits


def sends_in_transactions(spec: StreamSpec, target: StreamTarget) -> bool:
    """Return whether a target's tokens are the offsets of a consumer group in Kafka."""
    return isinstance(target, BrokerTarget) and spec.delivery == EXACTLY_ONCE


def _transaction_commit(
    spec: StreamSpec, target: StreamTarget, folder: CheckpointFolder, generation: str
) -> PartialCommit:
    ends = _last_ends(folder)
    sent = last_sent(_kafka(target), _group(spec), spec.writer(target, generation), ends)
    last = max((batch for batch, _ in sent.values()), default=None)
    planned = folder.ends(last) if last is not None else []
    strays = tuple(
        f"{topic}-{number} at {offset}, and the checkpoint says {planned[0][topic][str(number)]}"
        for (topic, number), (batch, offset) in sorted(sent.items())
        if batch == last and planned and planned[0].get(topic, {}).get(str(number)) not in (None, offset)
    )
    return PartialCommit(last, strays)


def _letter_commit(spec: StreamSpec, generation: str) -> int | None:
    letters = DeadLetterTable.of(spec)
    if not letters.is_there():
        return None
    text = letters.dialect.text_literal
    of_it = f"pipeline_name = {text(spec.name)} AND generation = {text(generation)}"
    try:
        with closing(letters.connect()) as client:
            ((last,),) = client.query(f"SELECT MAX(batch) FROM {letters.table} WHERE {of_it}")[1]
    except (MissingTable, MissingColumn):
        return None
    return None if last is None else int(last)


def known_generations(spec: StreamSpec, folder: CheckpointFolder, target: StreamTarget) -> dict[str, int]:
    """Return the generations of this stream that a target has tokens of, each with its last sequence."""
    before, after = f"{spec.name}@", f"::{target.name}"

    def is_meant(writer: str) -> bool:
        return writer.startswith(before) and writer.endswith(after)

    known = {
        writer[len(before) : -len(after)]: sequence for writer, sequence in _writers(spec, folder, target, is_meant)
    }
    return {generation: sequence for generation, sequence in known.items() if _REPLAY not in generation}


def _writers(
    spec: StreamSpec, folder: CheckpointFolder, target: StreamTarget, is_meant: Callable[[str], bool]
) -> Iterator[tuple[str, int]]:
    """Yield the writers that `is_meant` accepts, with their last sequences."""
    if sends_in_transactions(spec, target):
        yield from _sequences_of_groups(spec, folder, target, is_meant)
        return
    sink = _sink(target) if isinstance(target, TableTarget) else None
    if isinstance(sink, SqlSink):
        sequences = _sequences_of_database(sink, spec.writer(target, "%"))
        yield from ((writer, last) for writer, last in sequences.items() if is_meant(writer))
    elif isinstance(sink, LakeSink) and isinstance(target, TableTarget):
        yield from _sequences_of_lake(sink, target, is_meant).items()


def _sequences_of_groups(
    spec: StreamSpec, folder: CheckpointFolder, target: StreamTarget, is_meant: Callable[[str], bool]
) -> Iterator[tuple[str, int]]:
    ends = _last_ends(folder)
    for writer in token_groups(_kafka(target), _group(spec)):
        sent = last_sent(_kafka(target), _group(spec), writer, ends) if is_meant(writer) else {}
        if sent:
            yield writer, 1 + max(batch for batch, _ in sent.values())


def _sequences_of_database(sink: SqlSink, writers: str) -> dict[str, int]:
    d = sink.dialect
    name, sequence = d.relation(d.meta_schema, COMMITS.name), d.quote("sequence")
    like = f"writer LIKE {d.text_literal(writers)}"
    try:
        with closing(sink.connect()) as session:
            rows = session.rows(f"SELECT writer, MAX({sequence}) FROM {name} WHERE {like} GROUP BY writer")
    except MissingTable:
        return {}
    return {str(writer): int(last) for writer, last in rows}


def _sequences_of_lake(sink: LakeSink, target: TableTarget, is_meant: Callable[[str], bool]) -> dict[str, int]:
    """Return sequences from the state files beside the tables, named by writer, and from the log of a Delta table."""
    folder = sink.lake_root.state()
    names = [unquote(item.name).removesuffix(".json") for item in folder.iterdir()] if folder.is_dir() else []
    kept = {name: sequence for name in names if is_meant(name) and (sequence := sink.last_sequence(name))}
    table = target.load.table if target.load is not None else None
    schema, name = (table.schema, table.name) if table is not None else (target.schema, target.table)
    logged = sink.writers_of(schema, name) if isinstance(sink, DeltaSink) else {}
    known = {writer for writer in (*kept, *logged) if is_meant(writer)}
    return {writer: max(kept.get(writer, 0), logged.get(writer, 0)) for writer in known}


def _sink(target: TableTarget) -> BatchSink:
    connection = resolve(target.connection).connection
    maker = backend_for(connection).batch_sink
    if maker is None:
        raise AssertionError(f"{target.name} is no table")
    return maker(connection)


def _kafka(target: StreamTarget) -> KafkaConnection:
    connection: Any = resolve(target.connection).connection
    if not isinstance(connection, KafkaConnection):
        raise AssertionError(f"{target.name} is no topic")
    return connection


def _group(spec: StreamSpec) -> str:
    return getattr(resolve(spec.sources[0].connection).connection, "group_id", None) or spec.name


def _last_ends(folder: CheckpointFolder) -> Offsets:
    """Return the offsets, which list all partitions, of the last plan that can be read."""
    for number in (folder.last_planned(), folder.last_committed()):
        try:
            ends = folder.ends(number) if number is not None else []
        except FlowError:
            continue
        if ends and isinstance(ends[0], Mapping):
            return ends[0]
    return {}
