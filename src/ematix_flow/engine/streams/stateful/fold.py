"""The stateful processor: adds each micro-batch to the state once, and passes the rows that it emits to the targets.

State and emitted rows are committed in one step under the number of the micro-batch, before any target gets rows. A
crash before that changes nothing; after it the retry reads the emitted rows, and targets that have them skip them.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.streams.parts import DLQ
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.engine.streams.dead_letters import DeadLetters
from ematix_flow.engine.streams.stateful.keeper import Keeper, Kept
from ematix_flow.engine.streams.stateful.operator import AT, BATCH, Marks, Operator
from ematix_flow.engine.streams.stateful.rows import IS_LATE, EventTime, Watched
from ematix_flow.engine.streams.stateful.watermark import FUTURE, MILLISECOND, Times, advanced
from ematix_flow.engine.streams.unions import widened
from ematix_flow.families.messages.widening import widen_structs
from ematix_flow.foundation import fault
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import PlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)
_MOST_PARTS = 8
"""Reading many small parts costs more than writing one."""
_LATE = "_flow_late"
_TOO_LATE = "the row came when everything that it belongs to was closed"
STAGE = "late_data"


@dataclass(frozen=True)
class Manner:
    """The configuration of the processor for its operator."""

    made_by: str
    """Identifies the operator: others cannot read its state."""
    is_eager: bool = False
    """Whether rows may be emitted although the watermark does not move."""
    refuse_crowds: Callable[[DataFrame, int | None], None] | None = None
    most_rows: int = 0
    """Rows of state above which groups over the limit are searched for."""
    compact_ms: int = 60_000
    forgets: bool = False
    """Whether the state ends with the process, so that the next one begins with none."""


@dataclass
class Fold:
    """The state of one stream, updated and read by its operator."""

    spec: StreamSpec
    operator: Operator
    manner: Manner
    keeper: Keeper
    event_time: EventTime
    is_a_stage: bool = True
    told: dict[str, int] = field(default_factory=dict)
    """The counts of this process's micro-batches, for the metrics."""
    last: Kept | None = field(default=None, init=False)
    _own: str = field(default_factory=lambda: secrets.token_hex(4), init=False)
    """The suffix of part names: a process that was suspended during a restart replaces no parts of its successor."""

    def apply(
        self,
        given: Sequence[DataFrame],
        number: int,
        open_until: ExitStack,
        dead: DeadLetters | None,
        staged: Callable[[], None],
    ) -> DataFrame | None:
        """Return the rows for the targets, None when there are none; `staged` may raise before anything is committed.

        It is not called for a micro-batch that was committed already, whose rows are not read.
        """
        before = self._before(number)
        is_new = before is None or before.number < number
        # Rows without a time become letters in every try: letters that a try does not produce are deleted.
        timed = [self.event_time.placed(frame, dead) for frame in given] if is_new or dead is not None else []
        if dead is not None and not is_new:
            dead.doubt_counts()  # the rows of a committed micro-batch are not read
        self.last = self._folded(timed, number, before, open_until, staged) if is_new else before
        if self.last is not None and self.last.late is not None and dead is not None:
            dead.set_aside(self.keeper.read(self.last.late), _LATE, stage=STAGE)
        outcome = self.last.outcome if self.last is not None else None
        return self.keeper.read(outcome) if outcome is not None else None

    def pass_by(self, number: int) -> None:
        """Record a micro-batch whose messages all failed to decode."""
        before = self._before(number)
        if before is None or before.number < number:
            kept = before or Kept(number, made_by=self.manner.made_by, **_told(Times.of(len(self.spec.sources))))
            self.last = replace(kept, number=number, outcome=None, late=None, told={})
            self.keeper.commit(self.last)

    def _before(self, number: int) -> Kept | None:
        """Return the manifest before a micro-batch, or of an earlier try of it; raise PlanError for another one."""
        kept = self.last or self.keeper.kept()
        name = self.spec.name
        if kept is None and number > 0 and not self.manner.forgets:
            raise self._lost(f"the state of {name} is gone, and its checkpoint is at batch {number}")
        if kept is not None and kept.number not in (number - 1, number):
            raise self._lost(f"the state of {name} is that of batch {kept.number}, and its checkpoint is at {number}")
        if kept is not None and kept.made_by != self.manner.made_by:
            raise PlanError(
                f"the state of {name} was made by another {self.spec.processing[0]}=",
                hint=f"give the stream another name, or begin anew: flow stream rewind {name} --to earliest --yes",
            )
        return kept

    def _lost(self, what: str) -> PlanError:
        return PlanError(
            what,
            hint=f"bring the right one back, or begin anew: flow stream rewind {self.spec.name} --to earliest --yes",
        )

    def _folded(self, timed: Sequence[DataFrame], number: int, before: Kept | None, open_until: ExitStack,
                staged: Callable[[], None]) -> Kept:  # fmt: skip
        at = int(now().timestamp() * 1_000_000)
        kept = before or Kept(-1, compacted=at)
        times = Times(kept.newest, kept.heard, kept.mark) if before else Times.of(len(timed))
        watched = Watched(self.operator.late(times.mark) if times.mark is not None else None, at + FUTURE)
        late, marked = self._late([watched.marked(frame) for frame in timed], number, open_until)
        partials = self.operator.partials([watched.in_time(frame) for frame in marked], times.mark)
        numbered = partials.selectExpr("*", f"CAST({number} AS BIGINT) AS {BATCH}")
        part = self._part(number, "state")
        added = self.keeper.write(part, watched.added(numbered, self.operator.due(), times.mark))
        staged()
        seen = watched.heard()
        if seen.ahead:
            _log.warning("%s: %d row(s) are ahead of the clock by more than an hour, and do not move the watermark",
                         self.spec.name, seen.ahead)  # fmt: skip
        after = advanced(times, seen.newest, at, self.spec.watermark)
        made = replace(
            kept, number=number, made_by=self.manner.made_by, outcome=None, late=late, told={"late": seen.late},
            # A part without rows is kept for its columns, as long as there is no other.
            parts=(*kept.parts, part) if added or not kept.parts else kept.parts, rows=kept.rows + added, **_told(after),
        )  # fmt: skip
        made = self._outcome(made, Marks(times.mark, after.mark), (kept.due, seen.due))
        made = self._compacted(made, at)
        fault.point("before_fold")
        self.keeper.commit(made)
        fault.point("after_fold")
        for name, count in made.told.items():
            self.told[name] = self.told.get(name, 0) + count
        return made

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
        return part if self.keeper.write(part, late) else None, rows

    def _outcome(self, made: Kept, marks: Marks, dues: Sequence[int | None]) -> Kept:
        """Return the manifest with the rows emitted now, and with the next due moment."""
        state, due = self.state(made.parts), min((one for one in dues if one is not None), default=None)
        if self.manner.refuse_crowds is not None and made.rows > self.manner.most_rows:
            self.manner.refuse_crowds(state, marks.before)
        is_over = marks.after is not None and due is not None and due <= marks.after
        if not is_over and not self.manner.is_eager:
            return replace(made, due=due)
        part = self._part(made.number, "outcome")
        count = self.keeper.write(part, self.operator.emitted(state, marks, made.number))
        return replace(
            made,
            outcome=part if count else None,
            told={**made.told, "emitted": count},
            due=self._next_due(state, marks.after) if is_over else due,
        )

    def _next_due(self, state: DataFrame, mark: int | None) -> int | None:
        when = self.operator.due()
        (found,) = state.selectExpr(f"min(CASE WHEN {when} > {mark} THEN {when} END)").collect()[0]
        return None if found is None else int(found)

    def _compacted(self, made: Kept, at: int) -> Kept:
        """Return the manifest with one part instead of many, when compaction is due."""
        if len(made.parts) <= _MOST_PARTS and at - made.compacted < self.manner.compact_ms * MILLISECOND:
            return made
        part = self._part(made.number, "whole")
        rows = self.keeper.write(part, self.operator.kept(self.state(made.parts), made.mark))
        return replace(made, parts=(part,), rows=rows, compacted=at)

    def _part(self, number: int, name: str) -> str:
        return f"{number}-{name}-{self._own}"

    def state(self, parts: Sequence[str]) -> DataFrame:
        """Return all rows of the state."""
        return together([self.keeper.read(part) for part in parts])

    def close(self) -> None:
        """Close the state backend."""
        self.keeper.close()


def together(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the union of rows written while columns grew: missing columns are NULL, narrower types are widened."""
    wide = reduce(widen_structs, (frame.schema for frame in frames))
    return reduce(lambda one, other: one.union(other), (widened(frame, wide) for frame in frames))


def _told(times: Times) -> dict[str, Any]:
    return {"newest": times.newest, "heard": times.heard, "mark": times.mark}
