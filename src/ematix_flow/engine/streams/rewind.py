"""Rewinds of a stream: a preview of the rows that would be read again, then a new checkpoint that begins there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.kafka.topics import Topics
from ematix_flow.config.resolve import resolve
from ematix_flow.contract.stream import Offsets, PartitionLag, StreamRead, StreamSource
from ematix_flow.declare.connections import KafkaConnection
from ematix_flow.declare.strategy import Append, Scd2
from ematix_flow.declare.streams.spec import BrokerTarget, StreamSpec, StreamTarget, TableTarget
from ematix_flow.engine import lease
from ematix_flow.engine.streams.folder import StreamFolder
from ematix_flow.engine.streams.inspection import backlog
from ematix_flow.engine.streams.opening import source_of
from ematix_flow.engine.streams.standing import recorded
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import DeclarationError, FlowError, PlanError
from ematix_flow.foundation.names import nearest

if TYPE_CHECKING:
    from ematix_flow.runlog.protocol import RunLog

EARLIEST, LATEST = "earliest", "latest"
_THE_FIRST = datetime(1970, 1, 1, tzinfo=timezone.utc)
_BEYOND = timedelta(days=36_500)


@dataclass(frozen=True)
class Destination:
    """The position at which a stream is to begin: a word, a moment, or offsets."""

    word: str | None = None
    moment: datetime | None = None
    offsets: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, said: str) -> Destination:
        """Parse a user's text; a moment without a zone is UTC.

        >>> Destination.of("2026-01-31 10:00").moment.isoformat(), Destination.of('{"a": {"0": 5}}').offsets
        ('2026-01-31T10:00:00+00:00', {'a': {'0': 5}})
        """
        text = said.strip()
        if text in (EARLIEST, LATEST):
            return cls(word=text)
        with suppress(ValueError):
            found = json.loads(text)
            if isinstance(found, dict) and found:
                return cls(offsets=found)
            if isinstance(found, (int, float)) and not isinstance(found, bool) and found > 10**11:
                return cls(moment=datetime.fromtimestamp(found / 1000, timezone.utc))
        with suppress(ValueError):
            moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
            return cls(moment=moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc))
        near = nearest(text, (EARLIEST, LATEST))
        raise DeclarationError(
            f"{said!r} is no place to rewind to",
            hint=f"did you mean {near}?"
            if near
            else 'say earliest, latest, 2026-01-31T10:00:00Z or {"events": {"0": 1200}}',
        )

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> Destination:
        """Parse `{"kind": "timestamp", "ms": …}`, `{"kind": "offset", "bytes": …}` or `{"kind": "earliest"}`."""
        kind = said.get("kind")
        if kind == "timestamp" and isinstance(said.get("ms"), (int, float)):
            return cls(moment=datetime.fromtimestamp(said["ms"] / 1000, timezone.utc))
        if kind in (EARLIEST, LATEST):
            return cls(word=str(kind))
        given = said.get("offsets", said.get("bytes"))
        if kind in ("offset", "offsets") and given:
            return cls(offsets=dict(given)) if isinstance(given, Mapping) else cls.of(str(given))
        raise DeclarationError(
            f"{dict(said)!r} is no place to rewind to",
            hint='{"kind": "timestamp", "ms": …} or {"kind": "offset", "bytes": …}',
        )


def behind(spec: StreamSpec, batch: int) -> Destination:
    """Return the end of a micro-batch from the offset log, from which rows are read again."""
    folder = StreamFolder.of(spec)
    ends = folder.ends(batch)
    told = [end for end in ends[: len(spec.sources)] if end]
    if not told:
        last = folder.last_planned()
        raise PlanError(
            f"the offset log of {spec.name} has no batch {batch}",
            hint=f"the last one is {last}, and Spark keeps a hundred" if last is not None else "it has none at all",
        )
    return Destination(offsets={part: at for end in told for part, at in end.items()})


@dataclass(frozen=True)
class Step:
    """The move of one part of the source."""

    part: str
    here: str | None
    there: str | None
    rows: int | None
    """Rows that are read again; negative for rows that are never read; None where the source does not count."""
    skips: bool = False
    """Whether unread rows are skipped, as far as a source that does not count them can determine."""


@dataclass(frozen=True)
class Plan:
    """A rewind that can be carried out."""

    pipeline: str
    starts: tuple[str, ...]
    """The start position of every source."""
    steps: tuple[Step, ...]
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


def plan(spec: StreamSpec, to: Destination) -> Plan:
    """Return the moves of all parts, the rows, and the consequences for the targets; nothing is changed."""
    folder = StreamFolder.of(spec)
    starts, ends, steps = list[str](), list[Offsets](), list[Step]()
    for number in range(len(spec.sources)):
        source, read, _ = source_of(spec, number, folder, once=False)
        try:
            here = _reached(folder, number)
            start, there = _beginning(spec, source, read, to, here)
            source.check(replace(read, start=start))
            steps += _steps(source, read, here, there)
        finally:
            source.close()
        starts.append(start)
        ends.append(there)
    concerns, notes = consequences(
        spec, steps, waiting=backlog(spec, folder)[0], forward=to.word == LATEST, half_done=folder.has_open_batch()
    )
    return Plan(spec.name, tuple(starts), tuple(steps), concerns, notes, offsets=tuple(ends))


def rewind(spec: StreamSpec, to: Destination, *, confirmed: bool, run_log: RunLog | None) -> Plan:
    """Rewind the stream, while no other process runs it; raise PlanError for concerns without confirmation."""
    with lease.held(run_log, spec.name), StreamFolder.of(spec).taken():
        made = plan(spec, to)
        if made.concerns and not confirmed:
            raise PlanError(
                f"{spec.name} was not rewound: {'; '.join(made.concerns)}", hint="if that is meant, add --yes"
            )
        with recorded(run_log, spec.name, "rewind", lambda: made.to_dict()):
            made = replace(
                made,
                kept=str(StreamFolder.of(spec).begin_anew(made.starts if len(made.starts) > 1 else made.start, now())),
            )
            _tell_broker(spec, made)
    return made


def consequences(
    spec: StreamSpec,
    steps: Sequence[Step],
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
        doubt = doubled(target)
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


def doubled(target: StreamTarget) -> str | None:
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


def _beginning(
    spec: StreamSpec, source: StreamSource, read: StreamRead, to: Destination, here: Offsets
) -> tuple[str, Offsets]:
    """Return the start for the source, and its offsets as far as they are known."""
    if to.offsets is not None:
        if source.envelopes:
            source.offsets_at(read, _THE_FIRST)  # raises for a queue, which has no past
        whole = completed(_own(spec, read, to.offsets, here), here)
        return json.dumps(whole, sort_keys=True), whole
    is_kafka = isinstance(resolve(spec.sources[read.number].connection).connection, KafkaConnection)
    if to.moment is not None:
        found = source.offsets_at(read, to.moment)
    elif to.word == EARLIEST:
        found = source.offsets_at(read, _THE_FIRST)
    else:
        # The end is resolved now, so that messages that come meanwhile are not skipped. Messages in Kafka may have any
        # timestamp; other sources record the arrival.
        found = source.offsets_at(read, now() + (_BEYOND if is_kafka else timedelta()))
    if to.word == EARLIEST and not is_kafka:  # a Kafka connection may be set to latest: the word is not enough
        return EARLIEST, found
    return json.dumps(found, sort_keys=True), found


def _own(spec: StreamSpec, read: StreamRead, said: Offsets, here: Offsets) -> Offsets:
    """Return the offsets of one source out of those for several; Kafka's are identified by their topics."""
    if len(spec.sources) == 1:
        return said
    topics = {*Topics.of(read.query).names, *here}
    return {name: value for name, value in said.items() if name in topics}


def completed(said: Offsets, here: Offsets) -> Offsets:
    """Return offsets of every partition: those that are not given stay where they are.

    >>> completed({"orders": {"0": 3}}, {"orders": {"0": 5, "1": 7}})
    {'orders': {'0': 3, '1': 7}}
    """
    parts = {name: value for name, value in here.items() if isinstance(value, Mapping)}
    if not all(isinstance(value, Mapping) for value in said.values()):
        return said
    return {**parts, **{name: {**parts.get(name, {}), **value} for name, value in said.items()}}


def _reached(folder: StreamFolder, source: int) -> Offsets:
    """Return the position of a source; empty for an unreadable checkpoint, which a rewind may repair."""
    last = folder.last_committed()
    try:
        ends = folder.ends(last) if last is not None else []
    except (FlowError, ValueError):
        return {}
    return ends[source] if len(ends) > source else {}


def _steps(source: StreamSource, read: StreamRead, here: Offsets, there: Offsets) -> tuple[Step, ...]:
    """Return the moves part by part, from the rows that would be left to read at either position."""
    now_left, then_left = (_lag(source, read, offsets) for offsets in (here, there))
    places, goals = flat(here), flat(there)
    names = [*dict.fromkeys([*then_left, *now_left])] or [read.query]
    return tuple(
        Step(
            name,
            _place(name, names, places),
            _place(name, names, goals),
            _difference(then_left.get(name), now_left.get(name)),
            _skips(then_left.get(name), now_left.get(name)),
        )
        for name in names
    )


def _lag(source: StreamSource, read: StreamRead, offsets: Offsets) -> dict[str, PartitionLag]:
    """Return the lag by part; empty for a stream that never ran, and a source that cannot count from there."""
    try:
        return {item.part: item for item in source.lag(read, offsets)}
    except (KeyError, ValueError, TypeError):
        return {}


def _difference(then: PartitionLag | None, now_: PartitionLag | None) -> int | None:
    if then is None or now_ is None or then.rows is None or now_.rows is None:
        return None
    return then.rows - now_.rows


def _skips(then: PartitionLag | None, now_: PartitionLag | None) -> bool:
    """Return whether uncounted rows are skipped: the oldest unread row there is newer than the oldest one here."""
    if now_ is None or now_.rows is not None:
        return False
    return then is None or then.rows == 0 or (then.seconds or 0.0) < (now_.seconds or 0.0) - 1


def flat(offsets: Offsets) -> dict[str, str]:
    """Return offsets by part.

    >>> flat({"orders": {"0": 5, "1": 7}}), flat({"version": 12})
    ({'orders-0': '5', 'orders-1': '7'}, {'version': '12'})
    """
    made: dict[str, str] = {}
    for name, value in offsets.items():
        if isinstance(value, Mapping):
            made |= {f"{name}-{part}": str(at) for part, at in value.items()}
        else:
            made[str(name)] = str(value)
    return made


def _place(name: str, names: Sequence[str], places: Mapping[str, str]) -> str | None:
    """Return the position of a part; where offsets do not name parts, all of them as one text."""
    if name in places or not set(places).isdisjoint(names):
        return places.get(name)
    return " ".join(f"{word}={value}" for word, value in places.items()) or None


def _tell_broker(spec: StreamSpec, made: Plan) -> None:
    """Commit the new offsets to Kafka, where tools that read the consumer group show them."""
    for number, offsets in enumerate(made.offsets):
        if isinstance(resolve(spec.sources[number].connection).connection, KafkaConnection):
            source, read, _ = source_of(spec, number, StreamFolder.of(spec), once=False)
            with suppress(FlowError, ValueError, TypeError):
                source.committed(read, offsets)
            source.close()
