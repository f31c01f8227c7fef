"""The commit tokens of a stream in its targets and dead letters, for comparison with the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from ematix_flow.backends.catalog import backend_for
from ematix_flow.config.resolve import resolve
from ematix_flow.contract.backend import BatchSink
from ematix_flow.contract.stream import Offsets, TransactionTokens
from ematix_flow.declare.connections.brokers import consumer_group
from ematix_flow.declare.streams.spec import DLQ, EXACTLY_ONCE, BrokerTarget, StreamSpec, StreamTarget, TableTarget
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
    """Return whether a target's tokens are the offsets of a consumer group."""
    return isinstance(target, BrokerTarget) and spec.delivery == EXACTLY_ONCE


def _transaction_commit(
    spec: StreamSpec, target: StreamTarget, folder: CheckpointFolder, generation: str
) -> PartialCommit:
    ends = _last_ends(folder)
    sent = _tokens(target).last_sent(_group(spec), spec.writer(target, generation), ends)
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
    last: Mapping[str, int] = {}
    if sends_in_transactions(spec, target):
        last = _transaction_sequences(spec, folder, target, before, after)
    elif isinstance(target, TableTarget):
        table = target.load.table if target.load is not None else None
        schema, name = (table.schema, table.name) if table is not None else (target.schema, target.table)
        last = _sink(target).last_sequences(schema, name, prefix=before, suffix=after)
    known = {writer[len(before) : -len(after)]: sequence for writer, sequence in last.items()}
    return {generation: sequence for generation, sequence in known.items() if _REPLAY not in generation}


def _transaction_sequences(
    spec: StreamSpec, folder: CheckpointFolder, target: StreamTarget, before: str, after: str
) -> dict[str, int]:
    tokens, group, ends = _tokens(target), _group(spec), _last_ends(folder)
    writers = [name for name in tokens.writers(group) if name.startswith(before) and name.endswith(after)]
    sent = {writer: tokens.last_sent(group, writer, ends) for writer in writers}
    return {writer: 1 + max(batch for batch, _ in parts.values()) for writer, parts in sent.items() if parts}


def _sink(target: TableTarget) -> BatchSink:
    connection = resolve(target.connection).connection
    maker = backend_for(connection).batch_sink
    if maker is None:
        raise AssertionError(f"{target.name} is no table")
    return maker(connection)


def _tokens(target: StreamTarget) -> TransactionTokens:
    connection = resolve(target.connection).connection
    maker = backend_for(connection).broker_sink
    sink = maker(connection) if maker is not None else None
    if not isinstance(sink, TransactionTokens):
        raise AssertionError(f"{target.name} takes no transactions")
    return sink


def _group(spec: StreamSpec) -> str:
    return consumer_group(resolve(spec.sources[0].connection).connection) or spec.name


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
