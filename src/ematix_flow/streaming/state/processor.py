"""Merges each micro-batch into the state once and emits what is due."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.state import StateBackend, StateManifest
from ematix_flow.declare.streams.parts import DLQ
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.foundation import fault
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import PlanError
from ematix_flow.messages.type_widening import widen_structs
from ematix_flow.streaming.dlq.letters import FailedRows
from ematix_flow.streaming.runtime.processing import BatchRows, ProcessedRows, StagedProcessing
from ematix_flow.streaming.runtime.source_union import widen_to
from ematix_flow.streaming.state.event_time import IS_LATE, BatchObserver, EventTime
from ematix_flow.streaming.state.operator import AT, BATCH, Operator, WatermarkChange
from ematix_flow.streaming.state.watermark import FUTURE, MILLISECOND, EventTimes, advance_times

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)
_MOST_PARTS = 8
"""Reading many small parts costs more than writing one."""
_LATE = "_flow_late"
_TOO_LATE = "the row came when everything that it belongs to was closed"
STAGE = "late_data"
_FIGURES = {"late": "late_rows_dropped_total", "emitted": "windows_emitted_total"}
"""The metric of each count in a manifest."""


@dataclass(frozen=True)
class OperatorConfig:
    """The configuration of the processor for its operator."""

    made_by: str
    """Identifies the operator: others cannot read its state."""
    is_eager: bool = False
    """Whether rows may be emitted although the watermark does not move."""
    check_group_limit: Callable[[DataFrame, int | None], None] | None = None
    max_rows: int = 0
    """Rows of state above which groups over the limit are searched for."""
    compact_ms: int = 60_000
    forgets: bool = False
    """Whether the state ends with the process, so that the next one begins with none."""


@dataclass(frozen=True)
class _Addition:
    """A part of the state that is written, and not committed yet."""

    part: str
    rows: int
    late: str | None
    """The part with late rows that are dead letters."""
    at: int
    """The moment at which the micro-batch was read."""
    times: EventTimes
    """The event times before it."""
    observer: BatchObserver


@dataclass(frozen=True)
class StagedState(StagedProcessing):
    """A micro-batch that is prepared to be merged into the state."""

    before: StateManifest | None = None
    """The manifest before the micro-batch, or of an earlier try of it."""
    addition: _Addition | None = None
    """None for a micro-batch that an earlier try has committed."""


@dataclass
class StatefulProcessor:
    """The state of one stream, updated and read by its operator."""

    spec: StreamSpec
    operator: Operator
    config: OperatorConfig
    backend: StateBackend
    event_time: EventTime
    is_a_stage: bool = True
    last: StateManifest | None = field(default=None, init=False)
    _own: str = field(default_factory=lambda: secrets.token_hex(4), init=False)
    """The suffix of part names: a process that was suspended during a restart replaces no parts of its successor."""

    def stage(self, batch: BatchRows) -> StagedState:
        """Return the rows merged into a part of the state that nothing refers to yet.

        The rows of a micro-batch that was committed already are not read.
        """
        before = self._before(batch.number)
        is_new = before is None or before.number < batch.number
        if not is_new and not batch.splits:
            return StagedState(batch, is_new=False, before=before)
        # Rows without a time become letters in every try: letters that a try does not produce are deleted.
        timed = [self.event_time.with_event_time(frame, splits=batch.splits) for frame in batch.frames]
        failed = tuple(wrong for _, wrong in timed if wrong is not None)
        addition = self._addition([rows for rows, _ in timed], batch, before) if is_new else None
        return StagedState(batch, failed, is_new, before, addition)

    def commit(self, staged: StagedState) -> ProcessedRows:
        """Commit the state and its output together, and return the output."""
        manifest, figures = staged.before, dict[str, int]()
        if staged.addition is not None:
            manifest, figures = self._committed(staged.addition, staged.batch.number, staged.before)
        self.last = manifest
        failed: tuple[FailedRows, ...] = ()
        if manifest is not None and manifest.late is not None and staged.batch.splits:
            failed = (FailedRows(self.backend.read(manifest.late), _LATE, STAGE),)
        outcome = manifest.outcome if manifest is not None else None
        return ProcessedRows(self.backend.read(outcome) if outcome is not None else None, failed, figures)

    def skip_batch(self, number: int) -> None:
        """Record a micro-batch whose messages all failed to decode."""
        before = self._before(number)
        if before is None or before.number < number:
            kept = before or StateManifest(
                number, made_by=self.config.made_by, **_times_to_dict(EventTimes.of(len(self.spec.sources)))
            )
            self.last = replace(kept, number=number, outcome=None, late=None, told={})
            self.backend.commit(self.last)

    def _before(self, number: int) -> StateManifest | None:
        """Return the manifest before a micro-batch, or of an earlier try of it; raise PlanError for another one."""
        manifest = self.last or self.backend.manifest()
        name = self.spec.name
        if manifest is None and number > 0 and not self.config.forgets:
            raise self._lost(f"the state of {name} is gone, and its checkpoint is at batch {number}")
        if manifest is not None and manifest.number not in (number - 1, number):
            raise self._lost(
                f"the state of {name} is that of batch {manifest.number}, and its checkpoint is at {number}"
            )
        if manifest is not None and manifest.made_by != self.config.made_by:
            raise PlanError(
                f"the state of {name} was made by another {self.spec.processing[0]}=",
                hint=f"give the stream another name, or begin anew: flow stream rewind {name} --to earliest --yes",
            )
        return manifest

    def _lost(self, what: str) -> PlanError:
        return PlanError(
            what,
            hint=f"bring the right one back, or begin anew: flow stream rewind {self.spec.name} --to earliest --yes",
        )

    def _addition(self, timed: Sequence[DataFrame], batch: BatchRows, before: StateManifest | None) -> _Addition:
        """Write what a micro-batch adds to the state, and observe its rows while they are read."""
        number, at = batch.number, int(now().timestamp() * 1_000_000)
        times = EventTimes(before.newest, before.heard, before.mark) if before else EventTimes.of(len(timed))
        watched = BatchObserver(self.operator.late(times.mark) if times.mark is not None else None, at + FUTURE)
        late, marked = self._late([watched.marked(frame) for frame in timed], number, batch.open_until)
        partials = self.operator.partials([watched.in_time(frame) for frame in marked], times.mark)
        numbered = partials.selectExpr("*", f"CAST({number} AS BIGINT) AS {BATCH}")
        part = self._part(number, "state")
        added = self.backend.write(part, watched.added(numbered, self.operator.due(), times.mark))
        return _Addition(part, added, late, at, times, watched)

    def _committed(
        self, addition: _Addition, number: int, before: StateManifest | None
    ) -> tuple[StateManifest, dict[str, int]]:
        """Return the manifest with the addition and what it emits, after its commit; and the counts."""
        part, times, seen = addition.part, addition.times, addition.observer.statistics()
        if seen.ahead:
            _log.warning("%s: %d row(s) are ahead of the clock by more than an hour, and do not move the watermark",
                         self.spec.name, seen.ahead)  # fmt: skip
        kept = before or StateManifest(-1, compacted=addition.at)
        after = advance_times(times, seen.newest, addition.at, self.spec.watermark)
        manifest = replace(
            kept, number=number, made_by=self.config.made_by, outcome=None, late=addition.late, told={"late": seen.late},
            # A part without rows is kept for its columns, as long as there is no other.
            parts=(*kept.parts, part) if addition.rows or not kept.parts else kept.parts, rows=kept.rows + addition.rows,
            **_times_to_dict(after),
        )  # fmt: skip
        manifest = self._outcome(manifest, WatermarkChange(times.mark, after.mark), (kept.due, seen.due))
        manifest = self._compacted(manifest, addition.at)
        fault.point("before_fold")
        self.backend.commit(manifest)
        fault.point("after_fold")
        return manifest, {_FIGURES[name]: count for name, count in manifest.told.items()}

    def _late(
        self, marked: Sequence[DataFrame], number: int, open_until: ExitStack
    ) -> tuple[str | None, Sequence[DataFrame]]:
        """Write late rows that are dead letters to a part, so that every try finds them; return it, and the frames."""
        if self.spec.window is None or self.spec.window.late_data != DLQ:
            return None, marked
        rows = [frame.persist() for frame in marked]
        for frame in rows:
            open_until.callback(frame.unpersist)
        part = self._part(number, "late")
        late = rows[0].where(IS_LATE).drop(AT, IS_LATE).selectExpr("*", f"'{_TOO_LATE}' AS {_LATE}")
        return part if self.backend.write(part, late) else None, rows

    def _outcome(self, manifest: StateManifest, marks: WatermarkChange, dues: Sequence[int | None]) -> StateManifest:
        """Return the manifest with the rows emitted now, and with the next due moment."""
        state, due = self.state(manifest.parts), min((one for one in dues if one is not None), default=None)
        if self.config.check_group_limit is not None and manifest.rows > self.config.max_rows:
            self.config.check_group_limit(state, marks.before)
        is_over = marks.after is not None and due is not None and due <= marks.after
        if not is_over and not self.config.is_eager:
            return replace(manifest, due=due)
        part = self._part(manifest.number, "outcome")
        count = self.backend.write(part, self.operator.emitted(state, marks, manifest.number))
        return replace(
            manifest,
            outcome=part if count else None,
            told={**manifest.told, "emitted": count},
            due=self._next_due(state, marks.after) if is_over else due,
        )

    def _next_due(self, state: DataFrame, mark: int | None) -> int | None:
        when = self.operator.due()
        (due,) = state.selectExpr(f"min(CASE WHEN {when} > {mark} THEN {when} END)").collect()[0]
        return None if due is None else int(due)

    def _compacted(self, manifest: StateManifest, at: int) -> StateManifest:
        """Return the manifest with one part instead of many, when compaction is due."""
        if len(manifest.parts) <= _MOST_PARTS and at - manifest.compacted < self.config.compact_ms * MILLISECOND:
            return manifest
        part = self._part(manifest.number, "whole")
        rows = self.backend.write(part, self.operator.compacted(self.state(manifest.parts), manifest.mark))
        return replace(manifest, parts=(part,), rows=rows, compacted=at)

    def _part(self, number: int, name: str) -> str:
        return f"{number}-{name}-{self._own}"

    def state(self, parts: Sequence[str]) -> DataFrame:
        """Return all rows of the state."""
        return union_parts([self.backend.read(part) for part in parts])

    def close(self) -> None:
        """Close the state backend."""
        self.backend.close()


def union_parts(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the union of rows written while columns grew: missing columns are NULL, narrower types are widened."""
    wide = reduce(widen_structs, (frame.schema for frame in frames))
    return reduce(lambda one, other: one.union(other), (widen_to(frame, wide) for frame in frames))


def _times_to_dict(times: EventTimes) -> dict[str, Any]:
    return {"newest": times.newest, "heard": times.arrived, "mark": times.mark}
