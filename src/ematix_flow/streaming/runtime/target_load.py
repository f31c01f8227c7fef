"""One micro-batch on its way into one target: begun, staged, published, without the rows that the target refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ematix_flow.contract.write import WriteResult
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.engine.session import spark_errors
from ematix_flow.engine.sql.statement_errors import row_error
from ematix_flow.foundation.errors import FlowError, LeaseHeld, LeaseLost, RunCancelled
from ematix_flow.streaming.dlq.commit_coverage import NOTHING, CommitCoverage, CoverageByTarget
from ematix_flow.streaming.dlq.letters import BatchLetters, DeadLetters, FailedRows
from ematix_flow.streaming.runtime.batch_barrier import Stopping
from ematix_flow.streaming.runtime.decoding import DecodedRows
from ematix_flow.streaming.runtime.targets import FittedRows, StagedWrite, TargetWrite, TargetWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MAX_SEARCHES = 3
"""How often rows that a target refuses are searched for: other writers may change the target meanwhile."""
_NO_TARGETS_FAULT = (Stopping, LeaseHeld, LeaseLost, RunCancelled)
"""Errors that end the micro-batch even where the stream tolerates failing targets."""


@dataclass(frozen=True)
class BatchInProgress:
    """One micro-batch: what its steps have made of it so far."""

    number: int
    open_until: ExitStack
    """Releases what the micro-batch keeps until its end."""
    letters: BatchLetters
    is_watched: bool = False
    """Whether messages that cannot be decoded yet stay among the rows until these are staged."""
    is_deferred: bool = False
    """Whether letters are stored between stage and publish, with the bad rows counted while rows are staged."""
    sources: tuple[DecodedRows, ...] = ()
    """The decoded messages of every source whose rows are read."""
    frames: tuple[DataFrame, ...] = ()
    """The good rows, by source until a union makes them one frame."""
    rows: DataFrame | None = None
    """The rows for the targets."""

    def with_failed(self, *failed: FailedRows, has_failed_job: bool = False) -> BatchInProgress:
        """Return the micro-batch with more failed rows; after a failed job, observed counts may be incomplete."""
        letters = self.letters.plus(*failed)
        return replace(self, letters=replace(letters, has_failed_job=letters.has_failed_job or has_failed_job))

    def read_by(self, *targets: str) -> BatchInProgress:
        """Return the micro-batch after its rows were read, to be staged for these targets."""
        return replace(self, letters=replace(self.letters, read_by=frozenset(targets)))


@dataclass(frozen=True)
class TargetLoad:
    """A micro-batch on its way into one target, as far as it has come."""

    target: TargetWriter
    fitted: FittedRows | None = None
    write: TargetWrite | None = None
    staged: StagedWrite | None = None
    result: WriteResult | None = None
    """What was published, now or in an earlier try."""
    error: FlowError | None = None
    """The tolerated error because of which the target misses the micro-batch."""
    searches: int = 0
    """How often refused rows were searched for."""

    def coverage(self) -> CommitCoverage:
        """Return what the target has of the micro-batch from earlier tries; nothing where it was not begun."""
        return self.write.coverage() if self.write is not None and self.error is None else NOTHING


Step = Callable[[TargetLoad, BatchInProgress], tuple[TargetLoad, BatchInProgress]]


@dataclass(frozen=True)
class TargetSteps:
    """The steps of a micro-batch at its targets, each from values to values."""

    spec: StreamSpec
    dead_letters: DeadLetters | None
    """None where a bad row fails the micro-batch."""
    still_ours: Callable[[], None]

    @property
    def splits(self) -> bool:
        """Return whether bad rows are split off."""
        return self.dead_letters is not None

    def each(
        self, step: Step, loads: Sequence[TargetLoad], batch: BatchInProgress
    ) -> tuple[list[TargetLoad], BatchInProgress]:
        """Take a step at every target that neither failed nor has the micro-batch; raise what is not tolerated."""
        done = []
        for load in loads:
            if load.error is None and load.result is None:
                try:
                    load, batch = step(load, batch)
                except Exception as exc:
                    load = replace(load, staged=None, error=self.tolerated(exc))
                    batch = batch.with_failed(has_failed_job=True)
            done.append(load)
        return done, batch

    def tolerated(self, exc: Exception) -> FlowError:
        """Return the translated error where the stream goes on without the target; raise it otherwise."""
        if not self.spec.is_tolerant or isinstance(exc, _NO_TARGETS_FAULT):
            raise exc
        return spark_errors.translate(exc)

    def store(
        self, batch: BatchInProgress, coverage: CoverageByTarget | None = None, *, target: str | None = None
    ) -> BatchInProgress:
        """Store the letters that wait; of a retried micro-batch only those that this try decides about."""
        if self.dead_letters is None:
            return batch
        self.still_ours()
        return replace(batch, letters=self.dead_letters.store_waiting(batch.letters, coverage, target=target))

    def fit(self, load: TargetLoad, batch: BatchInProgress) -> tuple[TargetLoad, BatchInProgress]:
        """Cast the rows to the target's types."""
        if batch.rows is None:
            raise AssertionError("there are no rows to fit")
        fitted = load.target.fit(batch.rows, batch.open_until, splits=self.splits)
        return replace(load, fitted=fitted), batch.with_failed(*fitted.failed)

    def begin(self, load: TargetLoad, batch: BatchInProgress) -> tuple[TargetLoad, BatchInProgress]:
        """Begin the micro-batch at the target; it may have been published in an earlier try."""
        write = load.target.begin(batch.number)
        return replace(load, write=write, result=write.recovered), batch

    def stage(self, load: TargetLoad, batch: BatchInProgress) -> tuple[TargetLoad, BatchInProgress]:
        """Stage the rows, without those that cannot be staged."""
        if load.write is None:
            load, batch = self.begin(load, batch)
        if load.write is None or load.fitted is None or load.result is not None:
            return load, batch
        try:
            return replace(load, staged=load.write.stage(load.fitted.frame)), batch
        except Exception as exc:
            return self.stage(*self._without_refused(load, batch, exc))

    def publish(self, load: TargetLoad, batch: BatchInProgress) -> tuple[TargetLoad, BatchInProgress]:
        """Publish the staged rows, without those that the target refuses, and settle the write."""
        if load.staged is None or load.result is not None:
            return load, batch
        self.still_ours()
        try:
            result = load.staged.publish()
        except Exception as exc:
            return self.publish(*self.stage(*self._without_refused(load, batch, exc)))
        load.staged.settle(result)
        return replace(load, result=result), batch

    def _without_refused(
        self, load: TargetLoad, batch: BatchInProgress, exc: Exception
    ) -> tuple[TargetLoad, BatchInProgress]:
        """Return the load without the rows that the target refuses, whose letters are stored, to be begun anew.

        Raise `exc` where bad rows fail the micro-batch, no row is its cause, or the rows cannot be found.
        """
        if not self.splits or load.fitted is None or load.searches == _MAX_SEARCHES or row_error(exc) is None:
            raise exc
        fitted = load.target.without_refused(batch.number, load.fitted, batch.open_until)
        if fitted is None:
            raise exc
        batch = batch.with_failed(has_failed_job=True)
        # The others wait until it is known that all messages were decoded.
        waiting, found = batch.letters.waiting, replace(batch.letters, waiting=fitted.failed)
        batch = self.store(replace(batch, letters=found))
        batch = replace(batch, letters=replace(batch.letters, waiting=waiting))
        return TargetLoad(load.target, fitted, searches=load.searches + 1), batch
