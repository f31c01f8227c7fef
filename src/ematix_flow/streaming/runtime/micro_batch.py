"""One micro-batch: decode, set bad rows aside, transform, and publish to every target exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ematix_flow.dataplane.task_errors import raise_bad_value_sql
from ematix_flow.declare.streams.spec import FAIL, StreamSpec
from ematix_flow.engine.session import spark_errors
from ematix_flow.engine.sql.statement_errors import row_error
from ematix_flow.foundation import fault
from ematix_flow.foundation.errors import FlowError, LeaseHeld, LeaseLost, RunCancelled
from ematix_flow.messages.decode import ERROR, MOST_LESSONS, NOT_LEARNED
from ematix_flow.sql.spark_text import text_literal
from ematix_flow.streaming.dlq.collector import DeadLetterCollector
from ematix_flow.streaming.dlq.commit_coverage import EVERYTHING, NOTHING, CommitCoverage
from ematix_flow.streaming.runtime.backlog import Backlog
from ematix_flow.streaming.runtime.batch_barrier import BatchBarrier, Stopping
from ematix_flow.streaming.runtime.decoding import Decoder
from ematix_flow.streaming.runtime.source_union import align_columns, rows_of_source, union_aligned, with_source_number
from ematix_flow.streaming.runtime.targets import FittedRows, TargetWriter
from ematix_flow.streaming.runtime.transform import Transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST_CULLS = 3
"""How often rows that a target refuses are searched for: other writers may change the target meanwhile."""


class _Redecode(Exception):
    """Messages were staged that could not be decoded; nothing of the micro-batch was published."""

    def __init__(self, *, is_wiser: bool) -> None:
        super().__init__()
        self.is_wiser = is_wiser
        """Whether they can be decoded now."""


_NO_TARGETS_FAULT = (_Redecode, Stopping, LeaseHeld, LeaseLost, RunCancelled)
"""Errors that end the micro-batch even where the stream tolerates failing targets."""


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


class BatchProcessor(Protocol):
    """Row processing beyond SQL: windows, joins, change data."""

    is_a_stage: bool
    """Whether the rows are read before anything of them is stored, so that `staged` can still raise."""

    def apply(
        self,
        frames: Sequence[DataFrame],
        number: int,
        open_until: ExitStack,
        dead_letters: DeadLetterCollector | None,
        staged: Callable[[], None],
    ) -> DataFrame | None:
        """Return the rows for the targets from the rows of every source; None when there are none."""

    def skip_batch(self, number: int) -> None:
        """Record a micro-batch whose messages all failed to decode."""


@dataclass
class MicroBatch:
    """The function that Spark calls with every micro-batch (foreachBatch)."""

    spec: StreamSpec
    decoders: Sequence[Decoder]
    """One for every source."""
    transform: Transform | None
    targets: Sequence[TargetWriter]
    dead_letters: DeadLetterCollector | None
    backlog: Backlog
    barrier: BatchBarrier
    still_ours: Callable[[], None]
    processing: BatchProcessor | None = None
    counts: StreamCounts = field(default_factory=StreamCounts)
    failure: FlowError | None = None
    defers_letters: bool = False
    """Whether letters may be stored between stage and publish, with the bad rows counted while rows are staged."""
    _is_deferred: bool = field(default=False, init=False)
    _is_new: bool = field(default=False, init=False)

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

    def _publish(self, frame: DataFrame, number: int) -> None:
        self.still_ours()
        self._is_deferred = self._may_defer(number)
        watched = self._can_watch
        for left in reversed(range(MOST_LESSONS)):
            try:
                self._once(frame, number, watched=watched and left > 0)
                return
            except _Redecode as again:  # messages still not decoded are errors in the next, unwatched pass
                watched = again.is_wiser

    @property
    def _can_watch(self) -> bool:
        """Return whether rows are staged before anything is published, which also detects messages not decoded yet."""
        if self.spec.bad_rows.policy != FAIL and not self._is_deferred:
            return False
        if self.processing is not None:  # change data reads all rows itself
            return self.processing.is_a_stage
        return all(target.has_stage for target in self.targets)

    def _may_defer(self, number: int) -> bool:
        """Return whether letters of this micro-batch are stored between stage and publish, which saves a job.

        Not for a retry, whose letters are compared with those of the earlier try; nor where `max_bad_fraction` could
        stop a second target after the first has published.
        """
        dead, bad = self.dead_letters, self.spec.bad_rows
        if dead is None or not self.defers_letters or dead.is_retry(number):
            return False
        return all(target.has_stage for target in self.targets) and (len(self.targets) == 1 or bad.max_fraction is None)

    def _once(self, frame: DataFrame, number: int, *, watched: bool) -> None:
        with ExitStack() as open_until:
            read = [self._decoded(frame, source, open_until, watched=watched) for source in range(len(self.decoders))]
            if self.dead_letters is not None:
                self.dead_letters.begin()
                pairs = zip(read, self.decoders, strict=True)
                read = [self.dead_letters.decoded(rows, decoder.bad) for rows, decoder in pairs]
            if self._is_void(read):
                self._store_letters(number, {})
                if self.processing is not None:
                    self.processing.skip_batch(number)
                if self.dead_letters is not None and self.dead_letters.letters:
                    self._count_read(number)
                return
            if self.spec.is_union:
                read = self._as_one(read)
            if self.transform is not None:
                read = [self.transform.apply(rows, open_until, self.dead_letters) for rows in read]
                if self.dead_letters is not None and not self.transform.reads_all_rows:
                    self.dead_letters.discard_counts()
            rows = self._processed(read, number, open_until)
            if rows is None:
                self._store_letters(number, {})
                if self._is_new:
                    self._count_read(number)
                return
            if len(self.targets) > 1:  # several targets share one read
                rows = _persist(rows, open_until)
            behind = self._publish_all_missed()
            fitted = {
                target.name: behind.get(target.name) or self._fit(target, rows, open_until) for target in self.targets
            }
            if not self._is_deferred:
                self._store_letters(number, fitted)
            for target in self.targets:
                self._write(target, number, rows, fitted[target.name], open_until)
            if self._is_deferred:  # the letters of targets that failed
                self._store_letters(number, fitted)

    def _as_one(self, decoded: Sequence[DataFrame]) -> list[DataFrame]:
        """Return the rows of all sources under the same columns; a window gets one frame per source, for watermarks."""
        frames = align_columns(decoded)
        return frames if self.spec.window is not None else [union_aligned(frames)]

    def _is_void(self, frames: Sequence[DataFrame]) -> bool:
        """Return whether only bad messages ever came, so that no columns for SQL or a table are known."""
        return not any(decoder.knows_columns for decoder in self.decoders) and all(rows.isEmpty() for rows in frames)

    def _processed(self, frames: Sequence[DataFrame], number: int, open_until: ExitStack) -> DataFrame | None:
        """Return the rows for the targets; None where this micro-batch has none."""
        if self.processing is None:
            return frames[0]
        self._is_new = False
        staged = partial(self._staged, number, None)
        rows = self.processing.apply(frames, number, open_until, self.dead_letters, staged)
        if self.processing.is_a_stage and not self._is_new:  # an earlier try has read the rows
            for decoder in self.decoders:
                decoder.leave()
        return rows

    def _fit(self, target: TargetWriter, rows: DataFrame, open_until: ExitStack) -> FittedRows | FlowError:
        """Return the rows in the target's types, or the tolerated error for which it cannot take them now."""
        try:
            return target.fit(rows, open_until, self.dead_letters)
        except Exception as exc:
            return self._tolerated(exc)

    def _store_letters(self, number: int, fitted: Mapping[str, FittedRows | FlowError]) -> None:
        """Store the dead letters; of a retried micro-batch only those that this try decides about."""
        if self.dead_letters is None:
            return
        having = None
        if self.dead_letters.is_retry(number):
            having = {target.name: self._coverage(target, number, fitted.get(target.name)) for target in self.targets}
        self.still_ours()
        self.counts.bad += self.dead_letters.store_letters(number, having)

    def _coverage(self, target: TargetWriter, number: int, fitted: FittedRows | FlowError | None) -> CommitCoverage:
        """Return a target's commit coverage of a micro-batch; one in its backlog counts as fully covered."""
        if number in self.backlog.waiting(target):
            return EVERYTHING
        try:
            return target.coverage(number) if isinstance(fitted, FittedRows) else NOTHING
        except Exception as exc:
            self._tolerated(exc)
            return NOTHING

    def _staged(self, number: int, target: str | None) -> None:
        """Raise between stage and publish if the rows must not be published; not called for a published micro-batch."""
        self._is_new = True
        unread = [decoder for decoder in self.decoders if decoder.has_unknown_messages()]
        if unread:
            wiser = [decoder.learn() for decoder in unread]
            raise _Redecode(is_wiser=all(wiser))
        self.still_ours()
        if self._is_deferred and self.dead_letters is not None:
            self.counts.bad += self.dead_letters.store_read_letters(number, target)

    def _tolerated(self, exc: Exception) -> FlowError:
        """Return the translated error where the stream goes on without the target; raise it otherwise."""
        if not self.spec.is_tolerant or isinstance(exc, _NO_TARGETS_FAULT):
            raise exc
        if self.dead_letters is not None:
            self.dead_letters.discard_counts()
        return spark_errors.translate(exc)

    def _publish_all_missed(self) -> dict[str, FlowError]:
        """Publish missed micro-batches to each target, the oldest first; return the errors of targets still behind."""
        failed: dict[str, FlowError] = {}
        for target in self.targets:
            try:
                for old in self.backlog.waiting(target):
                    self._publish_missed(target, old)
            except Exception as exc:
                failed[target.name] = self._tolerated(exc)
            if self.spec.is_tolerant:
                self.counts.behind[target.name] = len(self.backlog.waiting(target))
        return failed

    def _publish_missed(self, target: TargetWriter, old: int) -> None:
        """Publish one missed micro-batch; its bad rows are letters of that micro-batch, found anew in every try."""
        dead = self.dead_letters.separate_batch() if self.dead_letters is not None else None
        with ExitStack() as open_until:
            fitted = target.fit(self.backlog.read(target, old), open_until, dead)
            if dead is not None:
                self.counts.bad += dead.store_letters(old, {target.name: target.coverage(old)}, target=target.name)
            # Only the lease is checked: `_staged` examines the rows of the current micro-batch, not read yet.
            self.counts.written += self._written(target, old, fitted, open_until, dead, self.still_ours)
        self.backlog.done(target, old)

    def _write(
        self, target: TargetWriter, number: int, rows: DataFrame, fitted: FittedRows | FlowError, open_until: ExitStack
    ) -> None:
        try:
            if isinstance(fitted, FlowError):
                raise fitted
            self._is_new = False
            staged = partial(self._staged, number, target.name)
            self.counts.written += self._written(target, number, fitted, open_until, self.dead_letters, staged)
            if self._is_new:
                self._count_read(number)
        except Exception as exc:
            error = self._tolerated(exc)
            self.counts.errors += 1
            self.backlog.add(target, number, rows, error)
            self.counts.behind[target.name] = len(self.backlog.waiting(target))

    def _written(self, target: TargetWriter, number: int, fitted: FittedRows, open_until: ExitStack,
                 dead_letters: DeadLetterCollector | None, staged: Callable[[], None]) -> int:  # fmt: skip
        """Publish, and return the row count; where letters are collected, set aside rows that the target refuses."""
        for _ in range(_MOST_CULLS):
            try:
                return target.write(number, fitted, staged)
            except Exception as exc:
                if dead_letters is not None:
                    dead_letters.discard_counts()
                error = row_error(exc)
                left = (
                    target.without_refused(number, fitted, error, open_until, dead_letters)
                    if dead_letters and error
                    else None
                )
                if left is None or dead_letters is None:
                    raise
                fitted = left
            self.counts.bad += dead_letters.store_letters(number)
        return target.write(number, fitted, staged)

    def _count_read(self, number: int) -> None:
        """Count the messages of a micro-batch after its rows were read: before, the observed counts would block."""
        if number in self.counts.read:
            return
        dead = self.dead_letters
        # With a bad row, some job over the rows has failed, and the counts observed on the way are incomplete.
        if dead is not None and dead.letters:
            self.counts.read[number] = dead.total()
            return
        seen = [count for decoder in self.decoders if (count := decoder.seen()) is not None]
        if seen:
            self.counts.read[number] = sum(seen)

    def _decoded(self, frame: DataFrame, source: int, open_until: ExitStack, *, watched: bool) -> DataFrame:
        decoder = self.decoders[source]
        rows = decoder.rows(rows_of_source(frame, source, decoder.columns), watched=watched)
        rows = with_source_number(rows, source) if self.spec.is_union else rows
        if ERROR not in rows.columns:
            return rows
        if self.spec.bad_rows.policy != FAIL:
            return rows if self._is_deferred else _persist(rows, open_until)
        refusal = raise_bad_value_sql(
            ERROR,
            before="a message cannot be decoded: ",
            after="",
            most=1000,
            hint='correct its producer, or say transform_on_error="dlq" to set such messages aside',
        )
        waits = f" OR startswith({ERROR}, {text_literal(NOT_LEARNED)})" if decoder.is_watched else ""
        passes = f"{ERROR} IS NULL{waits}"
        return rows.where(f"CASE WHEN {passes} THEN true ELSE {refusal} END").drop(ERROR)


def _persist(rows: DataFrame, open_until: ExitStack) -> DataFrame:
    kept = rows.persist()
    open_until.callback(kept.unpersist)
    return kept
