"""One micro-batch: decode, set bad rows aside, transform, and publish to every target exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ematix_flow.declare.streams.spec import FAIL, StreamSpec
from ematix_flow.engine import spark_errors
from ematix_flow.engine.streams.backlog import Backlog
from ematix_flow.engine.streams.dead_letters import DeadLetters
from ematix_flow.engine.streams.decoding import Decoder
from ematix_flow.engine.streams.gate import Gate
from ematix_flow.engine.streams.targets import TargetWriter
from ematix_flow.engine.streams.transform import Transform
from ematix_flow.families.carry import refusing_sql
from ematix_flow.families.lake.session import text
from ematix_flow.families.messages.decode import ERROR, MOST_LESSONS, NOT_LEARNED
from ematix_flow.foundation import fault
from ematix_flow.foundation.errors import FlowError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class _Again(Exception):
    """Messages were staged that were not understood; nothing of the micro-batch was published."""

    def __init__(self, *, is_wiser: bool) -> None:
        super().__init__()
        self.is_wiser = is_wiser
        """Whether they can be understood now."""


@dataclass
class Counts:
    """What happened since the stream was started."""

    batches: int = 0
    read: dict[int, int] = field(default_factory=dict)
    """The messages of a micro-batch that was read; one that was found published is not."""
    written: int = 0
    bad: int = 0
    errors: int = 0
    batch_seconds: float = 0.0
    behind: dict[str, int] = field(default_factory=dict)


@dataclass
class MicroBatch:
    """What Spark calls with every micro-batch."""

    spec: StreamSpec
    decoder: Decoder
    transform: Transform | None
    targets: Sequence[TargetWriter]
    dead_letters: DeadLetters | None
    backlog: Backlog
    gate: Gate
    still_ours: Callable[[], None]
    counts: Counts = field(default_factory=Counts)
    failure: FlowError | None = None
    _is_new: bool = field(default=False, init=False)

    def __call__(self, frame: DataFrame, number: int) -> None:
        with self.gate.batch():
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

    def _publish(self, frame: DataFrame, number: int) -> None:
        self.still_ours()
        watched = self._can_watch
        for left in reversed(range(MOST_LESSONS)):
            try:
                self._once(frame, number, watched=watched and left > 0)
                return
            except _Again as again:  # whatever nobody can teach is an error of the next look, which lets nothing pass
                watched = again.is_wiser

    @property
    def _can_watch(self) -> bool:
        """Whether a stage is filled before anything is published, and shows what was not understood."""
        return self.spec.bad_rows.policy == FAIL and all(target.has_stage for target in self.targets)

    def _once(self, frame: DataFrame, number: int, *, watched: bool) -> None:
        with ExitStack() as open_until:
            rows = self._decoded(frame, open_until, watched=watched)
            if self.dead_letters is not None:
                rows = self.dead_letters.aside(rows, stage="decode")
            if self._is_void(rows):
                self._settle(number)
                return
            if self.transform is not None:
                rows = self.transform.apply(rows, open_until, self.dead_letters)
            if len(self.targets) > 1:  # they share one read
                rows = _persisted(rows, open_until)
            ways = [self._ways(target, number, rows, open_until) for target in self.targets]
            self._settle(number)
            for target, found in zip(self.targets, ways, strict=True):
                self._write(target, number, rows, found)

    def _is_void(self, rows: DataFrame) -> bool:
        """Whether bad messages are all that ever came: nobody knows a column that SQL or a table could be made of."""
        return not self.decoder.knows_columns and rows.isEmpty()

    def _settle(self, number: int) -> None:
        if self.dead_letters is not None:
            self.counts.bad += self.dead_letters.settle(number)

    def _staged(self) -> None:
        """Asked between stage and publish, unless the target has the micro-batch already."""
        self._is_new = True
        if self.decoder.has_unread():
            raise _Again(is_wiser=self.decoder.learn())
        self.still_ours()

    def _ways(
        self, target: TargetWriter, number: int, rows: DataFrame, open_until: ExitStack
    ) -> list[tuple[int, DataFrame]] | FlowError:
        """The rows of this micro-batch, and of those the target missed, in its own types."""
        try:
            missed = [(old, self.backlog.read(target, old)) for old in self.backlog.waiting(target)]
            return [
                (which, target.fit(item, open_until, self.dead_letters)) for which, item in [*missed, (number, rows)]
            ]
        except Exception as exc:
            if not self.is_tolerant:
                raise
            return spark_errors.translate(exc)

    @property
    def is_tolerant(self) -> bool:
        """Whether a target that fails is left behind for a while."""
        return self.spec.continue_on_target_failure and len(self.targets) > 1

    def _write(
        self, target: TargetWriter, number: int, rows: DataFrame, ways: list[tuple[int, DataFrame]] | FlowError
    ) -> None:
        try:
            if isinstance(ways, FlowError):
                raise ways
            for which, fitted in ways:
                self._is_new = False
                self.counts.written += target.write(which, fitted, self._staged)
                if which == number and self._is_new:
                    self._count_read(number)
                if which != number:
                    self.backlog.done(target, which)
        except Exception as exc:
            if not self.is_tolerant or isinstance(exc, _Again):
                raise
            self.counts.errors += 1
            self.backlog.add(target, number, rows, spark_errors.translate(exc))
        if self.is_tolerant:
            self.counts.behind[target.name] = len(self.backlog.waiting(target))

    def _count_read(self, number: int) -> None:
        """Once somebody has read the rows: before, the answer would be waited for."""
        seen = self.decoder.seen() if number not in self.counts.read else None
        if seen is not None:
            self.counts.read[number] = seen

    def _decoded(self, frame: DataFrame, open_until: ExitStack, *, watched: bool) -> DataFrame:
        rows = self.decoder.rows(frame, watched=watched)
        if ERROR not in rows.columns:
            return rows
        if self.spec.bad_rows.policy != FAIL:
            return _persisted(rows, open_until)
        refusal = refusing_sql(
            ERROR,
            before="a message cannot be decoded: ",
            after="",
            most=1000,
            hint='correct its producer, or say transform_on_error="dlq" to set such messages aside',
        )
        waits = f" OR startswith({ERROR}, {text(NOT_LEARNED)})" if self.decoder.is_watched else ""
        passes = f"{ERROR} IS NULL{waits}"
        return rows.where(f"CASE WHEN {passes} THEN true ELSE {refusal} END").drop(ERROR)


def _persisted(rows: DataFrame, open_until: ExitStack) -> DataFrame:
    kept = rows.persist()
    open_until.callback(kept.unpersist)
    return kept
