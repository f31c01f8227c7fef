"""One micro-batch: decode, set bad rows aside, transform, and publish to every target exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from ematix_flow.contract.write import WriteResult
from ematix_flow.dataplane.task_errors import raise_bad_value_sql
from ematix_flow.declare.streams.spec import FAIL, StreamSpec
from ematix_flow.engine.session import spark_errors
from ematix_flow.foundation import fault
from ematix_flow.foundation.errors import FlowError
from ematix_flow.messages.decode import ERROR, MOST_LESSONS, NOT_LEARNED
from ematix_flow.sql.spark_text import text_literal
from ematix_flow.streaming.dlq.commit_coverage import EVERYTHING, NOTHING, CoverageByTarget
from ematix_flow.streaming.dlq.letters import DECODE, BatchLetters, DeadLetters, FailedRows
from ematix_flow.streaming.runtime.backlog import Backlog
from ematix_flow.streaming.runtime.batch_barrier import BatchBarrier, Stopping
from ematix_flow.streaming.runtime.decoding import DecodedRows, Decoder
from ematix_flow.streaming.runtime.processing import BatchProcessor, BatchRows, StagedProcessing
from ematix_flow.streaming.runtime.source_union import align_columns, rows_of_source, union_aligned, with_source_number
from ematix_flow.streaming.runtime.target_load import BatchInProgress, TargetLoad, TargetSteps
from ematix_flow.streaming.runtime.targets import TargetWriter
from ematix_flow.streaming.runtime.transform import Transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Lesson(Enum):
    """What became of messages that could not be decoded, and were found when all rows were staged."""

    LEARNED = "their schema was learned, and they can be decoded now"
    FAILED = "they are decoded before anything is staged, which shows their errors"


@dataclass
class StreamCounts:
    """The counts since the stream was opened."""

    batches: int = 0
    read: dict[int, int] = field(default_factory=dict)
    """Messages by micro-batch that was read; one that was found published is not counted."""
    written: int = 0
    bad: int = 0
    errors: int = 0
    batch_seconds: float = 0.0
    behind: dict[str, int] = field(default_factory=dict)
    more: dict[str, int] = field(default_factory=dict)
    """Other counts, by metric name."""

    def add_more(self, figures: Mapping[str, int]) -> None:
        """Add counts by metric name."""
        for name, count in figures.items():
            self.more[name] = self.more.get(name, 0) + count


@dataclass
class MicroBatch:
    """The function that Spark calls with every micro-batch (foreachBatch)."""

    spec: StreamSpec
    decoders: Sequence[Decoder]
    """One for every source."""
    transform: Transform | None
    targets: Sequence[TargetWriter]
    dead_letters: DeadLetters | None
    backlog: Backlog
    barrier: BatchBarrier
    still_ours: Callable[[], None]
    processing: BatchProcessor | None = None
    counts: StreamCounts = field(default_factory=StreamCounts)
    failure: FlowError | None = None
    defers_letters: bool = False
    """Whether letters may be stored between stage and publish, with the bad rows counted while rows are staged."""

    def __call__(self, frame: DataFrame, number: int) -> None:
        with self.barrier.batch():
            began = time.monotonic()
            fault.point("after_read")
            try:
                self._publish(frame, number)
            except FlowError as exc:
                self.failure = exc.at(self.spec.where)
                raise
            except Exception as exc:
                self.failure = spark_errors.translate(exc).at(self.spec.where)
                raise self.failure from exc
            self.counts.batches += 1
            self.counts.batch_seconds = time.monotonic() - began

    def catch_up(self) -> int:
        """Publish, between two micro-batches, those that targets missed; return how many are still missed."""
        with suppress(Stopping), self.barrier.batch():
            self.still_ours()
            self._publish_all_missed()
        return sum(len(self.backlog.waiting(target)) for target in self.targets)

    @property
    def _steps(self) -> TargetSteps:
        return TargetSteps(self.spec, self.dead_letters, self.still_ours)

    def _publish(self, frame: DataFrame, number: int) -> None:
        """Publish a micro-batch; it is decoded again as long as messages turn out not to be decoded yet."""
        self.still_ours()
        is_deferred = self._may_defer(number)
        is_watched = self._can_watch(is_deferred=is_deferred)
        for left in reversed(range(MOST_LESSONS)):
            with ExitStack() as open_until:
                watches = is_watched and left > 0  # in the last, unwatched pass undecoded messages are errors
                batch = BatchInProgress(number, open_until, BatchLetters(number), watches, is_deferred)
                lesson = self._run(frame, batch)
            if lesson is None:
                return
            is_watched = lesson is Lesson.LEARNED

    def _can_watch(self, *, is_deferred: bool) -> bool:
        """Return whether rows are staged before anything is published, which also detects messages not decoded yet."""
        if self.spec.bad_rows.policy != FAIL and not is_deferred:
            return False
        if self.processing is not None:  # change data reads all rows itself
            return self.processing.is_a_stage
        return all(target.has_stage for target in self.targets)

    def _may_defer(self, number: int) -> bool:
        """Return whether letters of this micro-batch are stored between stage and publish, which saves a job.

        Not for a retry, whose letters are compared with those of the earlier try.
        """
        if self.dead_letters is None or not self.defers_letters or self.dead_letters.is_retry(number):
            return False
        return all(target.has_stage for target in self.targets)

    def _run(self, frame: DataFrame, batch: BatchInProgress) -> Lesson | None:
        """Take all steps of a micro-batch; return a lesson if it must be decoded again, and nothing was published."""
        batch = self._decoded(frame, batch)
        if self._is_void(batch):
            batch = self._store_alone(batch)
            if self.processing is not None:
                self.processing.skip_batch(batch.number)
            self._count(batch, has_read=batch.letters.count > 0)
            return None
        batch = self._transformed(self._as_one(batch))
        if self.processing is None:
            return self._write(replace(batch, rows=batch.frames[0]))
        return self._process(batch, self.processing)

    def _decoded(self, frame: DataFrame, batch: BatchInProgress) -> BatchInProgress:
        """Return the micro-batch with its messages decoded; those that cannot be decoded are split off, or fail it."""
        sources = tuple(
            decoder.decode(rows_of_source(frame, number, decoder.columns), watched=batch.is_watched)
            for number, decoder in enumerate(self.decoders)
        )
        frames = [self._judged(source, number, batch) for number, source in enumerate(sources)]
        if not self._steps.splits:
            return replace(batch, sources=sources, frames=tuple(frames))
        bad = [
            FailedRows(rows, ERROR, DECODE, counted=source.bad)
            for rows, source in zip(frames, sources, strict=True)
            if ERROR in rows.columns
        ]
        good = tuple(rows.where(f"{ERROR} IS NULL").drop(ERROR) if ERROR in rows.columns else rows for rows in frames)
        letters = BatchLetters(batch.number, decoded=tuple(frames), waiting=tuple(bad))
        return replace(batch, sources=sources, frames=good, letters=letters)

    def _judged(self, source: DecodedRows, number: int, batch: BatchInProgress) -> DataFrame:
        """Return the decoded rows of a source with their errors, or without where an error fails the micro-batch."""
        rows = with_source_number(source.rows, number) if self.spec.is_union else source.rows
        if ERROR not in rows.columns:
            return rows
        if self.spec.bad_rows.policy != FAIL:
            return rows if batch.is_deferred else _persist(rows, batch.open_until)
        refusal = raise_bad_value_sql(
            ERROR,
            before="a message cannot be decoded: ",
            after="",
            most=1000,
            hint='correct its producer, or say transform_on_error="dlq" to set such messages aside',
        )
        waits = f" OR startswith({ERROR}, {text_literal(NOT_LEARNED)})" if source.is_watched else ""
        passes = f"{ERROR} IS NULL{waits}"
        return rows.where(f"CASE WHEN {passes} THEN true ELSE {refusal} END").drop(ERROR)

    def _is_void(self, batch: BatchInProgress) -> bool:
        """Return whether only bad messages ever came, so that no columns for SQL or a table are known."""
        return not any(source.knows_columns for source in batch.sources) and all(
            rows.isEmpty() for rows in batch.frames
        )

    def _as_one(self, batch: BatchInProgress) -> BatchInProgress:
        """Return the rows of all sources under the same columns; a window gets one frame per source, for watermarks."""
        if not self.spec.is_union:
            return batch
        frames = align_columns(batch.frames)
        return replace(batch, frames=tuple(frames) if self.spec.window is not None else (union_aligned(frames),))

    def _transformed(self, batch: BatchInProgress) -> BatchInProgress:
        """Return the micro-batch after its SQL, without the rows on which that fails where bad rows are split off."""
        if self.transform is None:
            return batch
        if not self._steps.splits:
            return replace(batch, frames=tuple(self.transform.apply(rows, batch.open_until) for rows in batch.frames))
        results = [self.transform.apply_row_by_row(rows, batch.open_until) for rows in batch.frames]
        failed = [bad for _, bad in results if bad is not None]
        batch = batch.with_failed(*failed, has_failed_job=bool(failed) or not self.transform.reads_all_rows)
        return replace(batch, frames=tuple(rows for rows, _ in results))

    def _process(self, batch: BatchInProgress, processing: BatchProcessor) -> Lesson | None:
        """Process the rows and write the outcome; a processor that is a stage has read all rows before it commits."""
        staged: StagedProcessing = processing.stage(
            BatchRows(batch.number, batch.frames, batch.open_until, self._steps.splits)
        )
        batch = batch.with_failed(*staged.failed)
        if not staged.is_new:  # an earlier try has read the rows
            batch = replace(batch.with_failed(has_failed_job=True), sources=())
        elif processing.is_a_stage:
            lesson = self._lesson(batch, were_read=True)
            if lesson is not None:
                return lesson
            batch = replace(batch, sources=tuple(replace(source, is_watched=False) for source in batch.sources))
            self.still_ours()
            if batch.is_deferred:
                batch = self._steps.store(batch.read_by())
        processed = processing.commit(staged)
        self.counts.add_more(processed.figures)
        batch = replace(batch.with_failed(*processed.failed), rows=processed.rows)
        if batch.rows is not None:
            return self._write(batch)
        self._count(self._store_alone(batch), has_read=staged.is_new)
        return None

    def _lesson(self, batch: BatchInProgress, *, were_read: bool) -> Lesson | None:
        """Learn the schema of messages that were not decoded; None if there are none."""
        unknown = [source for source in batch.sources if source.has_unknown_messages(were_read=were_read)]
        learned = [source.learn() for source in unknown]
        return (Lesson.LEARNED if all(learned) else Lesson.FAILED) if unknown else None

    def _write(self, batch: BatchInProgress) -> Lesson | None:
        """Write the rows to all targets: they are staged everywhere before they are published anywhere."""
        if batch.rows is not None and len(self.targets) > 1:  # several targets share one read
            batch = replace(batch, rows=_persist(batch.rows, batch.open_until))
        behind, steps = self._publish_all_missed(), self._steps
        loads = [TargetLoad(target, error=behind.get(target.name)) for target in self.targets]
        loads, batch = steps.each(steps.fit, loads, batch)
        if self.dead_letters is not None and self.dead_letters.is_retry(batch.number):
            loads, batch = steps.each(steps.begin, loads, batch)
            batch = steps.store(batch, self._coverage(loads, batch.number))
        elif not batch.is_deferred:
            batch = steps.store(batch)
        loads, batch = steps.each(steps.stage, loads, batch)
        staged = [load.target.name for load in loads if load.staged is not None]
        if staged or any(load.error for load in loads):  # what a target misses is kept as rows, which must be decoded
            lesson = self._lesson(batch, were_read=bool(staged))
            if lesson is not None:
                return lesson
        if batch.is_deferred:
            batch = steps.store(batch.read_by(*staged) if staged else batch)
        loads, batch = steps.each(steps.publish, loads, batch)
        self._settle(loads, batch)
        return None

    def _store_alone(self, batch: BatchInProgress) -> BatchInProgress:
        """Store the letters of a micro-batch that has no rows for the targets."""
        if self.dead_letters is None or not self.dead_letters.is_retry(batch.number):
            return self._steps.store(batch)
        loads = [TargetLoad(target) for target in self.targets]
        return self._steps.store(batch, self._coverage(loads, batch.number))

    def _coverage(self, loads: Sequence[TargetLoad], number: int) -> CoverageByTarget:
        """Return each target's commit coverage of a micro-batch; one in its backlog counts as fully covered."""
        coverage = {}
        for load in loads:
            try:
                waits = number in self.backlog.waiting(load.target)
                coverage[load.target.name] = EVERYTHING if waits else load.coverage()
            except Exception as exc:
                self._steps.tolerated(exc)
                coverage[load.target.name] = NOTHING
        return coverage

    def _settle(self, loads: Sequence[TargetLoad], batch: BatchInProgress) -> None:
        """Count what was written, and keep the rows for targets that failed."""
        for load in loads:
            if load.result is not None:
                self._count_result(load.target, batch.number, load.result)
            elif load.error is not None and batch.rows is not None:
                self.counts.errors += 1
                self.backlog.add(load.target, batch.number, batch.rows, load.error)
                self.counts.behind[load.target.name] = len(self.backlog.waiting(load.target))
        self._count(batch, has_read=any(load.staged is not None for load in loads))

    def _count_result(self, target: TargetWriter, number: int, result: WriteResult) -> None:
        self.counts.written += result.counts.read
        self.counts.add_more(target.figures(number, result))

    def _count(self, batch: BatchInProgress, *, has_read: bool) -> None:
        """Count letters, and messages if the rows were read: before, the observed counts would block."""
        letters = batch.letters
        self.counts.bad += letters.count
        if not has_read:
            return
        # With a bad row, some job over the rows has failed, and the counts observed on the way are incomplete.
        if letters.count:
            self.counts.read[batch.number] = letters.with_messages().messages or 0
            return
        seen = [count for source in batch.sources if (count := source.seen()) is not None]
        if seen:
            self.counts.read[batch.number] = sum(seen)

    def _publish_all_missed(self) -> dict[str, FlowError]:
        """Publish missed micro-batches to each target, the oldest first; return the errors of targets still behind."""
        failed: dict[str, FlowError] = {}
        for target in self.targets:
            try:
                for old in self.backlog.waiting(target):
                    self._publish_missed(target, old)
            except Exception as exc:
                failed[target.name] = self._steps.tolerated(exc)
            if self.spec.is_tolerant:
                self.counts.behind[target.name] = len(self.backlog.waiting(target))
        return failed

    def _publish_missed(self, target: TargetWriter, old: int) -> None:
        """Publish one missed micro-batch; its bad rows are letters of that micro-batch, found anew in every try."""
        steps = self._steps
        with ExitStack() as open_until:
            batch = BatchInProgress(old, open_until, BatchLetters(old), rows=self.backlog.read(target, old))
            load, batch = steps.begin(*steps.fit(TargetLoad(target), batch))
            if steps.splits:
                batch = steps.store(batch, {target.name: load.coverage()}, target=target.name)
            load, batch = steps.publish(*steps.stage(load, batch))
            if load.result is None:
                raise AssertionError("a write that is not published raises its error")
            self.counts.bad += batch.letters.count
            self._count_result(target, old, load.result)
        self.backlog.done(target, old)


def _persist(rows: DataFrame, open_until: ExitStack) -> DataFrame:
    kept = rows.persist()
    open_until.callback(kept.unpersist)
    return kept
