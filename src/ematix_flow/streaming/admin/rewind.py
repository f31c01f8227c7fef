"""Rewinds of a stream: a preview of the rows that would be read again, then a new checkpoint that begins there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.stream import (
    EARLIEST,
    FIRST_MOMENT,
    LATEST,
    Offsets,
    PartitionLag,
    StreamRead,
    StreamSource,
)
from ematix_flow.declare.strategy import Append, Scd2
from ematix_flow.declare.streams.spec import BrokerTarget, StreamSpec, StreamTarget, TableTarget
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import DeclarationError, FlowError, PlanError
from ematix_flow.foundation.names import nearest_name
from ematix_flow.run_log import lease
from ematix_flow.streaming.admin.inspection import backlog
from ematix_flow.streaming.admin.status import recorded_action
from ematix_flow.streaming.runtime.checkpoint_folder import CheckpointFolder
from ematix_flow.streaming.runtime.opening import source_of

if TYPE_CHECKING:
    from ematix_flow.run_log.protocol import RunLog


@dataclass(frozen=True)
class RewindTarget:
    """The position at which a stream is to begin: a word, a moment, or offsets."""

    word: str | None = None
    moment: datetime | None = None
    offsets: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, value: str) -> RewindTarget:
        """Parse a user's text; a moment without a zone is UTC.

        >>> RewindTarget.of("2026-01-31 10:00").moment.isoformat(), RewindTarget.of('{"a": {"0": 5}}').offsets
        ('2026-01-31T10:00:00+00:00', {'a': {'0': 5}})
        """
        text = value.strip()
        if text in (EARLIEST, LATEST):
            return cls(word=text)
        with suppress(ValueError):
            offsets = json.loads(text)
            if isinstance(offsets, dict) and offsets:
                return cls(offsets=offsets)
            if isinstance(offsets, (int, float)) and not isinstance(offsets, bool) and offsets > 10**11:
                return cls(moment=datetime.fromtimestamp(offsets / 1000, timezone.utc))
        with suppress(ValueError):
            moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
            return cls(moment=moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc))
        near = nearest_name(text, (EARLIEST, LATEST))
        raise DeclarationError(
            f"{value!r} is no place to rewind to",
            hint=f"did you mean {near}?"
            if near
            else 'say earliest, latest, 2026-01-31T10:00:00Z or {"events": {"0": 1200}}',
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RewindTarget:
        """Parse `{"kind": "timestamp", "ms": …}`, `{"kind": "offset", "bytes": …}` or `{"kind": "earliest"}`."""
        kind = data.get("kind")
        if kind == "timestamp" and isinstance(data.get("ms"), (int, float)):
            return cls(moment=datetime.fromtimestamp(data["ms"] / 1000, timezone.utc))
        if kind in (EARLIEST, LATEST):
            return cls(word=str(kind))
        offsets = data.get("offsets", data.get("bytes"))
        if kind in ("offset", "offsets") and offsets:
            return cls(offsets=dict(offsets)) if isinstance(offsets, Mapping) else cls.of(str(offsets))
        raise DeclarationError(
            f"{dict(data)!r} is no place to rewind to",
            hint='{"kind": "timestamp", "ms": …} or {"kind": "offset", "bytes": …}',
        )


def offsets_behind(spec: StreamSpec, batch: int) -> RewindTarget:
    """Return the end of a micro-batch from the offset log, from which rows are read again."""
    folder = CheckpointFolder.of(spec)
    ends = folder.ends(batch)
    known_ends = [end for end in ends[: len(spec.sources)] if end]
    if not known_ends:
        last = folder.last_planned()
        raise PlanError(
            f"the offset log of {spec.name} has no batch {batch}",
            hint=f"the last one is {last}, and Spark keeps a hundred" if last is not None else "it has none at all",
        )
    return RewindTarget(offsets={part: at for end in known_ends for part, at in end.items()})


@dataclass(frozen=True)
class RewindStep:
    """The move of one part of the source."""

    part: str
    here: str | None
    there: str | None
    rows: int | None
    """Rows that are read again; negative for rows that are never read; None where the source does not count."""
    skips: bool = False
    """Whether unread rows are skipped, as far as a source that does not count them can determine."""


@dataclass(frozen=True)
class RewindPlan:
    """A rewind that can be carried out."""

    pipeline: str
    starts: tuple[str, ...]
    """The start position of every source."""
    steps: tuple[RewindStep, ...]
    concerns: tuple[str, ...]
    """Consequences that a user has to confirm."""
    notes: tuple[str, ...] = ()
    kept: str | None = None
    """The path of the old checkpoint, once the rewind is done."""
    offsets: tuple[Offsets, ...] = ()

    @property
    def start(self) -> str:
        """Return the start positions as one text."""
        return self.starts[0] if len(set(self.starts)) == 1 else ", ".join(self.starts)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON data."""
        steps = [{"part": item.part, "from": item.here, "to": item.there, "rows": item.rows} for item in self.steps]
        return {
            "pipeline": self.pipeline, "start": self.start, "parts": steps, "concerns": list(self.concerns),
            "notes": list(self.notes), "kept": self.kept,
        }  # fmt: skip


def plan_rewind(spec: StreamSpec, to: RewindTarget) -> RewindPlan:
    """Return the moves of all parts, the rows, and the consequences for the targets; nothing is changed."""
    folder = CheckpointFolder.of(spec)
    starts, ends, steps = list[str](), list[Offsets](), list[RewindStep]()
    for number in range(len(spec.sources)):
        source, read, _ = source_of(spec, number, folder, once=False)
        try:
            here = _current_offsets(folder, number)
            start, target_offsets = _target_offsets(spec, source, read, to, here)
            source.check(replace(read, start=start))
            steps += _steps(source, read, here, target_offsets)
        finally:
            source.close()
        starts.append(start)
        ends.append(target_offsets)
    concerns, notes = rewind_consequences(
        spec, steps, waiting=backlog(spec, folder)[0], forward=to.word == LATEST, half_done=folder.has_open_batch()
    )
    return RewindPlan(spec.name, tuple(starts), tuple(steps), concerns, notes, offsets=tuple(ends))


def rewind_stream(spec: StreamSpec, to: RewindTarget, *, confirmed: bool, run_log: RunLog | None) -> RewindPlan:
    """Rewind the stream, while no other process runs it; raise PlanError for concerns without confirmation."""
    with lease.hold_lease(run_log, spec.name), CheckpointFolder.of(spec).exclusive():
        rewind_plan = plan_rewind(spec, to)
        if rewind_plan.concerns and not confirmed:
            raise PlanError(
                f"{spec.name} was not rewound: {'; '.join(rewind_plan.concerns)}", hint="if that is meant, add --yes"
            )
        with recorded_action(run_log, spec.name, "rewind", lambda: rewind_plan.to_dict()):
            rewind_plan = replace(
                rewind_plan,
                kept=str(
                    CheckpointFolder.of(spec).start_new_generation(
                        rewind_plan.starts if len(rewind_plan.starts) > 1 else rewind_plan.start, now()
                    )
                ),
            )
            _commit_to_broker(spec, rewind_plan)
    return rewind_plan


def rewind_consequences(
    spec: StreamSpec,
    steps: Sequence[RewindStep],
    *,
    waiting: Mapping[str, int],
    forward: bool = False,
    half_done: bool = False,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the consequences that a user has to confirm, and those that are only worth knowing.

    `half_done` is true when a batch was planned and not committed, which targets may have by now.
    """
    concerns, notes = list[str](), list[str]()
    uncounted = any(item.rows is None for item in steps)
    again = half_done or any(item.rows is not None and item.rows > 0 for item in steps) or (uncounted and not forward)
    for target in spec.targets if again else ():
        doubt = duplicate_reason(target)
        if doubt is None:
            notes.append(f"{target.name} takes rows again without a trace: it is written by key")
        else:
            concerns.append(f"{target.name} {doubt}")
    skipped = -sum(item.rows for item in steps if item.rows is not None and item.rows < 0)
    if skipped:
        concerns.append(f"{skipped:,} rows that were not read yet would never be")
    elif (uncounted and forward) or any(item.skips for item in steps):
        concerns.append("what was not read yet would never be, and the source does not count it")
    concerns += [
        f"{name} has not taken {count} micro-batch(es) yet, which stay with the old checkpoint"
        for name, count in waiting.items()
    ]
    stateful = [word for word in spec.processing if word != "cdc"]
    if stateful:
        concerns.append(f"the state of {', '.join(stateful)} begins anew")
    return tuple(concerns), tuple(notes)


def duplicate_reason(target: StreamTarget) -> str | None:
    """Return why rows that are read again show in a target; None where they do not."""
    if isinstance(target, BrokerTarget):
        return "is sent the messages again"
    if not isinstance(target, TableTarget):
        return "may get rows twice"
    strategy = target.load.strategy if target.load is not None else None
    if isinstance(strategy, Append) or (strategy is None and target.mode == "append"):
        return "is appended to, and gets the rows twice"
    event_time = strategy.event_time if isinstance(strategy, Scd2) else target.options.get("event_timestamp_column")
    if target.mode == "scd2" and not event_time:
        return "keeps versions by the time they came, and gets old ones as new"
    return None


def _target_offsets(
    spec: StreamSpec, source: StreamSource, read: StreamRead, to: RewindTarget, here: Offsets
) -> tuple[str, Offsets]:
    """Return the start for the source, and its offsets as far as they are known."""
    if to.offsets is not None:
        if source.envelopes:
            source.offsets_at(read, FIRST_MOMENT)  # raises for a queue, which has no past
        whole = complete_offsets(_own(spec, source, read, to.offsets, here), here)
        return json.dumps(whole, sort_keys=True), whole
    if to.moment is not None:
        offsets = source.offsets_at(read, to.moment)
        return json.dumps(offsets, sort_keys=True), offsets
    return source.position(read, to.word or LATEST)


def _own(spec: StreamSpec, source: StreamSource, read: StreamRead, offsets: Offsets, here: Offsets) -> Offsets:
    """Return the offsets of one source out of those for several."""
    if len(spec.sources) == 1:
        return offsets
    names = {*source.names(read), *here}
    return {name: value for name, value in offsets.items() if name in names}


def complete_offsets(offsets: Offsets, here: Offsets) -> Offsets:
    """Return offsets of every partition: those that are not given stay where they are.

    >>> complete_offsets({"orders": {"0": 3}}, {"orders": {"0": 5, "1": 7}})
    {'orders': {'0': 3, '1': 7}}
    """
    parts = {name: value for name, value in here.items() if isinstance(value, Mapping)}
    if not all(isinstance(value, Mapping) for value in offsets.values()):
        return offsets
    return {**parts, **{name: {**parts.get(name, {}), **value} for name, value in offsets.items()}}


def _current_offsets(folder: CheckpointFolder, source: int) -> Offsets:
    """Return the position of a source; empty for an unreadable checkpoint, which a rewind may repair."""
    last = folder.last_committed()
    try:
        ends = folder.ends(last) if last is not None else []
    except (FlowError, ValueError):
        return {}
    return ends[source] if len(ends) > source else {}


def _steps(source: StreamSource, read: StreamRead, here: Offsets, target_offsets: Offsets) -> tuple[RewindStep, ...]:
    """Return the moves part by part, from the rows that would be left to read at either position."""
    now_left, then_left = (_lag(source, read, offsets) for offsets in (here, target_offsets))
    places, goals = offsets_by_part(here), offsets_by_part(target_offsets)
    names = [*dict.fromkeys([*then_left, *now_left])] or [read.query]
    return tuple(
        RewindStep(
            name,
            _part_label(name, names, places),
            _part_label(name, names, goals),
            _row_difference(then_left.get(name), now_left.get(name)),
            _is_skipping(then_left.get(name), now_left.get(name)),
        )
        for name in names
    )


def _lag(source: StreamSource, read: StreamRead, offsets: Offsets) -> dict[str, PartitionLag]:
    """Return the lag by part; empty for a stream that never ran, and a source that cannot count from there."""
    try:
        return {item.part: item for item in source.lag(read, offsets)}
    except (KeyError, ValueError, TypeError):
        return {}


def _row_difference(then: PartitionLag | None, now_: PartitionLag | None) -> int | None:
    if then is None or now_ is None or then.rows is None or now_.rows is None:
        return None
    return then.rows - now_.rows


def _is_skipping(then: PartitionLag | None, now_: PartitionLag | None) -> bool:
    """Return whether uncounted rows are skipped: the oldest unread row there is newer than the oldest one here."""
    if now_ is None or now_.rows is not None:
        return False
    return then is None or then.rows == 0 or (then.seconds or 0.0) < (now_.seconds or 0.0) - 1


def offsets_by_part(offsets: Offsets) -> dict[str, str]:
    """Return offsets by part.

    >>> offsets_by_part({"orders": {"0": 5, "1": 7}}), offsets_by_part({"version": 12})
    ({'orders-0': '5', 'orders-1': '7'}, {'version': '12'})
    """
    parts: dict[str, str] = {}
    for name, value in offsets.items():
        if isinstance(value, Mapping):
            parts |= {f"{name}-{part}": str(at) for part, at in value.items()}
        else:
            parts[str(name)] = str(value)
    return parts


def _part_label(name: str, names: Sequence[str], places: Mapping[str, str]) -> str | None:
    """Return the position of a part; where offsets do not name parts, all of them as one text."""
    if name in places or not set(places).isdisjoint(names):
        return places.get(name)
    return " ".join(f"{word}={value}" for word, value in places.items()) or None


def _commit_to_broker(spec: StreamSpec, rewind_plan: RewindPlan) -> None:
    """Report the new offsets to the brokers, whose own tools may show them."""
    for number, offsets in enumerate(rewind_plan.offsets):
        source, read, _ = source_of(spec, number, CheckpointFolder.of(spec), once=False)
        with suppress(FlowError, ValueError, TypeError):
            source.rewound(read, offsets)
        source.close()
