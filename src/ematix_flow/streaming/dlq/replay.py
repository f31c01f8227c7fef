"""The replay of dead letters: leased, and processed like a micro-batch under the stream's current declaration."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.stream import ENVELOPE, StreamRead, StreamSource
from ematix_flow.declare.engine import LOCAL, EngineOptions
from ematix_flow.declare.streams.spec import DLQ, StreamSpec
from ematix_flow.engine.session import session
from ematix_flow.foundation.errors import PlanError, RunFailed, Unsupported
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.messages.decode import DecodingState
from ematix_flow.streaming.admin.status import recorded_action
from ematix_flow.streaming.dlq.commit_coverage import CoverageByTarget
from ematix_flow.streaming.dlq.dead_letter import DeadLetter, LetterSelection, UnfinishedBatches
from ematix_flow.streaming.dlq.letters import ROW, DeadLetters
from ematix_flow.streaming.dlq.replay_decoding import ReplayedRowDecoder, holds_line, letter_decoder
from ematix_flow.streaming.dlq.replay_lease import hold_letters
from ematix_flow.streaming.dlq.table import DeadLetterTable, ReplayFailure
from ematix_flow.streaming.runtime.backlog import Backlog
from ematix_flow.streaming.runtime.batch_barrier import BatchBarrier
from ematix_flow.streaming.runtime.checkpoint_folder import CheckpointFolder
from ematix_flow.streaming.runtime.decoding import CSV, Decoder, line_format_of
from ematix_flow.streaming.runtime.micro_batch import MicroBatch
from ematix_flow.streaming.runtime.opening import jars_of, processing_of, source_of, writer_of
from ematix_flow.streaming.runtime.source_union import SOURCE_NUMBER, origin_of
from ematix_flow.streaming.runtime.targets import TableTargetWriter, TargetWriter
from ematix_flow.streaming.runtime.transform import Transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.run_log.protocol import RunLog

_log = logging.getLogger(__name__)
MOST_AT_ONCE = 500
"""The most letters that are published together."""
_SCHEMA = ", ".join(f"`{name}` {kind}" for name, kind in ENVELOPE)


@dataclass
class ReplayReport:
    """The counts of a replay."""

    taken: int = 0
    succeeded: int = 0
    redeadlettered: int = 0
    parked: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return the counts as JSON data."""
        return asdict(self)


def replay_dead_letters(
    spec: StreamSpec, selection: LetterSelection, *, most_attempts: int | None = None, run_log: RunLog | None = None
) -> ReplayReport:
    """Replay the selected letters; those that fail again are returned, and parked after their last attempt."""
    if spec.window is not None or spec.join is not None:
        raise Unsupported(
            f"{spec.name} has a {spec.processing[0]}, which a dead letter cannot be put into by hand",
            hint=f"send the message to the source again, corrected: flow dlq show {spec.name} ID has it",
            where=spec.where,
        )
    letters, report = DeadLetterTable.of(spec), ReplayReport()
    letters.bring_up_to_date()
    selection = letters.with_full_ids(selection)
    work = _ReplayRun(letters, spec, report, most_attempts or spec.bad_rows.max_attempts)
    with recorded_action(run_log, spec.name, "dead letters", report.to_dict):
        try:
            for old in letters.expired_leases():
                with hold_letters(letters) as lease:
                    work.group(letters.take_over(old, lease.until))
            for _, some in groupby(sorted(_replayable_letters(letters, selection, spec), key=_target), key=_target):
                ids = [one for one, _ in some]
                for start in range(0, len(ids), MOST_AT_ONCE):
                    with hold_letters(letters) as lease:
                        work.group(letters.lease(ids[start : start + MOST_AT_ONCE], lease.until))
        finally:
            work.close()
    return report


def _replayable_letters(
    letters: DeadLetterTable, selection: LetterSelection, spec: StreamSpec
) -> list[tuple[str, str | None]]:
    """Return ids and targets of the replayable letters; the retry of an unfinished micro-batch may write its rows."""
    free = letters.waiting(selection, unfinished_batches(spec))
    kept_back = len(letters.waiting(selection)) - len(free)
    if kept_back:
        _log.warning(
            "%d dead letter(s) of %s are left alone: a target has not their micro-batch yet; run the stream first",
            kept_back, spec.name,
        )  # fmt: skip
    return free


def unfinished_batches(spec: StreamSpec) -> UnfinishedBatches | None:
    """Return the micro-batches that the next start retries; None where the checkpoint names no generation."""
    folder = CheckpointFolder.of(spec)
    generation, last = folder.read_metadata().get("generation"), folder.last_committed()
    if generation is None:
        return None
    backlog = Backlog(folder.root / "behind")
    behind = {item.name: backlog.waiting(item) for item in spec.targets}  # type: ignore[arg-type]  # its name is enough
    return UnfinishedBatches(str(generation), -1 if last is None else last, behind)


@dataclass
class _ReplayRun:
    letters: DeadLetterTable
    spec: StreamSpec
    report: ReplayReport
    max_attempts: int
    _steps: ReplaySteps | None = None

    def group(self, group: Sequence[DeadLetter]) -> None:
        """Replay one group: letters of one target, or of all targets."""
        if not group:
            return
        if self._steps is None:
            folder = CheckpointFolder.of(self.spec)
            self._steps = ReplaySteps.of(self.spec, folder, folder.prepare())
        self.report.taken += len(group)
        for part in _same_steps(group, self.spec):
            written = self._steps.publish(part, self._return_failed)
            self.letters.mark_done(written)
            self.report.succeeded += len(written)

    def _return_failed(self, failures: Sequence[ReplayFailure], also_taken: Collection[str]) -> None:
        parked = self.letters.return_failed(failures, self.max_attempts, also_taken)
        self.report.parked += parked
        self.report.redeadlettered += len(failures) - parked

    def close(self) -> None:
        if self._steps is not None:
            self._steps.close()


def _same_steps(group: Sequence[DeadLetter], spec: StreamSpec) -> Iterator[list[DeadLetter]]:
    """Yield letters by the steps that they take: rows that SQL made of several messages skip the first ones."""

    def steps(letter: DeadLetter) -> tuple[str, bool, bool]:
        has_lines = line_format_of(spec, origin_of(letter.place)) == CSV
        return letter.target or "", letter.payload_format == ROW, has_lines and holds_line(letter)

    for _, some in groupby(sorted(group, key=lambda letter: (steps(letter), letter.id)), key=steps):
        yield list(some)


def _target(id_and_target: tuple[str, str | None]) -> str:
    return id_and_target[1] or ""


StoreFailures = Callable[[Sequence[ReplayFailure], Collection[str]], None]
"""Stores the letters that failed again; for the ids in the second argument, some targets still take the rows."""


@dataclass
class ReplayDeadLetterStore:
    """A dead-letter store that returns letters which fail again, and names the writers after the remaining letters."""

    group: Sequence[DeadLetter]
    keep: StoreFailures
    targets: Sequence[TargetWriter]
    generation: str
    failed: set[str] = field(default_factory=set)
    open_batch: int | None = None

    def __post_init__(self) -> None:
        self._name()

    def retract(self, number: int, coverage: CoverageByTarget, target: str | None) -> None:
        """Do nothing: a replay finds no records of an earlier try."""

    def write(self, number: int, records: DataFrame) -> None:
        """Find the letters that the records come from, and store how they failed now."""
        known: dict[tuple[Any, ...], list[DeadLetter]] = {}
        for letter in self.group:
            known.setdefault((letter.source_id, *_place_key(letter.place), _digest(letter.payload)), []).append(letter)
        failures: list[ReplayFailure] = []
        for (stage, target, *row), matching in _records_by_message(records).items():
            came_from = known.get(tuple(row))
            if came_from is None:
                raise RunFailed(
                    f"messages fail again in the {stage} step, and which of them cannot be determined: {matching[0]['error']}",
                    hint="replay them one by one: flow dlq replay ID",
                )
            failures += _pair_with_records(came_from, matching, stage, target)
        also_taken = {item.letter.id for item in failures} - self._refused_by_all(failures)
        self.keep(failures, also_taken)
        self.failed |= {item.letter.id for item in failures} - also_taken
        self._name()

    def _refused_by_all(self, failures: Sequence[ReplayFailure]) -> set[str]:
        """Return the letters that no target takes; others stay in the group until the targets that take them do."""
        refusing: dict[str, set[str | None]] = {}
        for item in failures:
            refusing.setdefault(item.letter.id, set()).add(item.target)
        names = {target.name for target in self.targets}
        return {one for one, refused in refusing.items() if None in refused or refused >= names}

    @property
    def good(self) -> list[DeadLetter]:
        """Return the letters that go into the targets."""
        return [letter for letter in self.group if letter.id not in self.failed]

    def _name(self) -> None:
        """Name the writers after the letters and their attempts: a repeated replay finds its own commit token."""
        own = f"{self.generation}.replay-{replay_identity(self.good)}"
        for target in self.targets:
            writer: Any = target.table if isinstance(target, TableTargetWriter) else target
            writer.generation = own


@dataclass
class ReplaySteps:
    """The steps of one stream for groups of letters; Spark is started with the first group."""

    spec: StreamSpec
    folder: CheckpointFolder
    generation: str
    _transform: Transform | None = None
    _sources: list[tuple[StreamSource, StreamRead]] = field(default_factory=list)
    _spark: SparkSession | None = None

    @classmethod
    def of(cls, spec: StreamSpec, folder: CheckpointFolder, generation: str) -> ReplaySteps:
        """Return the steps of a stream with its policy for bad rows replaced: here they return to the letters."""
        bad = replace(spec.bad_rows, policy=DLQ, max_fraction=None)
        delivery = "auto" if spec.delivery == "exactly_once" else spec.delivery  # letters have no offsets to commit
        own = replace(spec, bad_rows=bad, continue_on_target_failure=False, delivery=delivery)
        return cls(own, folder, generation)

    def publish(self, group: Sequence[DeadLetter], keep: StoreFailures) -> list[DeadLetter]:
        """Write the letters, exactly once where the target has tokens; return those that were written."""
        spark = self._session()
        spec = replace(self.spec, targets=self._targets(group[0].target))
        targets = [writer_of(spec, target, self.folder, self.generation) for target in spec.targets]
        back = ReplayDeadLetterStore(group, keep, targets, self.generation)
        is_written_row = group[0].payload_format == ROW
        decoders = self._decoders(spark, group[0])
        work = MicroBatch(
            spec=spec,
            decoders=decoders,
            transform=None if is_written_row else self._transformer(),
            targets=targets,
            dead_letters=DeadLetters(spec, back),
            backlog=Backlog(self.folder.root / "replays"),  # a separate one: the stream publishes missed micro-batches
            barrier=BatchBarrier(),
            still_ours=lambda: None,
            processing=None if is_written_row else processing_of(spec, decoders[0]),
        )
        work(letters_as_messages(spark, group, several=len(decoders) > 1), 0)
        return back.good

    def close(self) -> None:
        """Release the lookups, and close the sources."""
        if self._transform is not None:
            self._transform.close()
        for source, _ in self._sources:
            source.close()

    def _session(self) -> SparkSession:
        if self._spark is None:
            sources = [source_of(self.spec, number, self.folder, once=True) for number in range(len(self.spec.sources))]
            self._sources = [(source, read) for source, read, _ in sources]
            jars = jars_of(self.spec, [backend for _, _, backend in sources]) | self.folder.jars
            self._spark = session.spark_session(jars, engine=EngineOptions(LOCAL))
        return self._spark

    def _targets(self, name: str | None) -> tuple[Any, ...]:
        if name is None:
            return self.spec.targets
        targets = tuple(target for target in self.spec.targets if target.name == name)
        if not targets:
            raise PlanError(
                f"{self.spec.name} has no target {name!r} any more, which these dead letters are for",
                where=self.spec.where,
                hint=f"{did_you_mean(name, [target.name for target in self.spec.targets])} flow dlq park leaves them out",
            )
        return targets

    def _transformer(self) -> Transform | None:
        if self._transform is None and (self.spec.transform_sql or self.spec.lookups):
            self._transform = Transform(self.spec)
        return self._transform

    def _decoders(self, spark: SparkSession, letter: DeadLetter) -> list[Decoder]:
        """Return a decoder for every source, since all of them define the columns; one for rows that SQL has made."""
        if letter.payload_format == ROW:
            return [ReplayedRowDecoder(DecodingState("json"))]
        own = origin_of(letter.place)
        return [
            letter_decoder(spark, self.spec, self.folder, source, read, letter if number == own else None)
            for number, (source, read) in enumerate(self._sources)
        ]


def letters_as_messages(spark: SparkSession, group: Sequence[DeadLetter], *, several: bool = False) -> DataFrame:
    """Return the letters as the messages that they were; with `several` sources, each with its source number."""
    rows = [
        (
            letter.key, letter.payload, letter.headers or None, letter.source_id, letter.place.get("partition"),
            letter.place.get("offset"), letter.place.get("message_id"), letter.event_ts,
        )
        for letter in group
    ]  # fmt: skip
    if not several:
        return spark.createDataFrame(rows, _SCHEMA)
    numbered = [(*row, origin_of(letter.place)) for row, letter in zip(rows, group, strict=True)]
    return spark.createDataFrame(numbered, f"{_SCHEMA}, {SOURCE_NUMBER} INT")


def replay_identity(letters: Sequence[DeadLetter]) -> str:
    """Return a hash that identifies these letters in their current attempt."""
    text = "\n".join(sorted(f"{letter.id}/{letter.attempt}" for letter in letters))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _records_by_message(records: DataFrame) -> Mapping[tuple[Any, ...], list[Any]]:
    """Return the records by stage, target and message; a row without a source position may occur several times."""
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for row in records.select("id", "stage", "error", "target", "source_id", "position", "payload").collect():
        message = (row["source_id"], *_place_key(_parsed_position(row["position"])), _digest(row["payload"]))
        groups.setdefault((row["stage"], row["target"], *message), []).append(row)
    return groups


def _pair_with_records(
    letters: Sequence[DeadLetter], records: Sequence[Any], stage: str, target: str | None
) -> Iterator[ReplayFailure]:
    """Yield each letter as a failure with a record of its own, as far as there are enough records.

    A letter that was for one target stays one for that target, whatever step it fails in.
    """
    for number, letter in enumerate(letters):
        record, meant = records[min(number, len(records) - 1)], target or letter.target
        if (stage, meant) == (letter.stage, letter.target):
            own = letter.id
        elif target == meant and letter.place:
            own = record["id"]
        else:
            own = hashlib.sha256(f"{letter.id}/{stage}/{meant or ''}".encode()).hexdigest()
        yield ReplayFailure(letter, own, stage, record["error"], meant)


def _place_key(place: Mapping[str, Any]) -> tuple[Any, ...]:
    return place.get("partition"), place.get("offset"), place.get("message_id"), origin_of(place)


def _parsed_position(position: str | None) -> Mapping[str, Any]:
    data: Mapping[str, Any] = json.loads(position) if position else {}
    return data


def _digest(payload: bytes | bytearray | None) -> str:
    return hashlib.sha256(bytes(payload or b"")).hexdigest()
