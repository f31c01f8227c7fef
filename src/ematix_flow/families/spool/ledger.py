"""Which message is where: waiting, written, offered, committed; and what the broker may be told. No file, no thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ematix_flow.families.spool.receiver import Message, identity
from ematix_flow.families.spool.segments import Segment

_TO_REFUSE = "!"


class Offset(NamedTuple):
    """Where a stream stands in the spool: behind this segment, and behind so many messages."""

    segment: int = 0
    rows: int = 0

    def told(self) -> dict[str, int]:
        """As the checkpoint keeps it."""
        return {"segment": self.segment, "rows": self.rows}

    def behind(self, segments: Sequence[Segment]) -> Offset:
        """The same number, with a position that no message of these segments has."""
        return Offset(self.segment, max([self.rows, *(segment.end for segment in segments)]))

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Offset:
        """As the checkpoint kept it."""
        return cls(int(told["segment"]), int(told["rows"]))


@dataclass
class Held:
    """A message that is not in a segment yet, with every delivery of it."""

    message: Message
    known: str | None
    tags: list[Any]


@dataclass
class Due:
    """Deliveries that the broker can be told about."""

    acks: list[Any] = field(default_factory=list)
    refusals: list[tuple[Any, str | None]] = field(default_factory=list)
    """Tag and identity of messages that somebody refused for good."""


@dataclass
class Ledger:
    """One spool's knowledge; whoever uses it from two threads locks it."""

    offered: Offset = field(default_factory=Offset)
    committed: int = 0
    end: int = 0
    """The position behind the last message that is written."""
    segments: dict[int, Segment] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)
    held_bytes: int = 0
    refused: set[int] = field(default_factory=set)
    """Positions of messages that the broker shall dead-letter."""
    due: Due = field(default_factory=Due)
    outstanding: int = 0
    """Deliveries that the broker waits to hear about."""
    _known: dict[int, Sequence[str | None]] = field(default_factory=dict)
    _places: dict[str, tuple[int, int]] = field(default_factory=dict)
    _held_at: dict[str, int] = field(default_factory=dict)
    _remembered: dict[str, bool] = field(default_factory=dict)
    """And whether the broker still has to hear that the message is refused."""
    _tags: dict[int, dict[int, list[Any]]] = field(default_factory=dict)

    def restore(self, segment: Segment, known: Sequence[str | None]) -> None:
        """A segment that an earlier process wrote and Spark planned."""
        self.segments[segment.number], self._known[segment.number] = segment, known
        self._places.update({one: (segment.number, row) for row, one in enumerate(known) if one is not None})

    def admit(self, message: Message) -> None:
        """Take one delivery: a message that is new is held, another delivery of one that is known settles with it."""
        known = identity(message.message_id, message.value)
        self.outstanding += 1
        if known is not None:
            if known in self._places:
                self._again(*self._places[known], message.tag)
                return
            if known in self._remembered:
                self._once_more(known, message.tag)
                return
            if known in self._held_at:
                self.held[self._held_at[known]].tags.append(message.tag)
                return
            self._held_at[known] = len(self.held)
        self.held.append(Held(message, known, [message.tag]))
        self.held_bytes += len(message.value)

    def _again(self, number: int, row: int, tag: Any) -> None:
        if number <= self.committed:
            self._settle(number, row, [tag])
        else:
            self._tags.setdefault(number, {}).setdefault(row, []).append(tag)

    def _once_more(self, known: str, tag: Any) -> None:
        if self._remembered[known]:
            self.due.refusals.append((tag, known))
        else:
            self.due.acks.append(tag)

    def _settle(self, number: int, row: int, tags: Iterable[Any]) -> None:
        if self.segments[number].first + row in self.refused:
            self.due.refusals.extend((tag, self._known[number][row]) for tag in tags)
        else:
            self.due.acks.extend(tags)

    def stored(self, segment: Segment) -> None:
        """What was held is durable now."""
        self.restore(segment, [item.known for item in self.held])
        self._tags[segment.number] = {row: item.tags for row, item in enumerate(self.held)}
        self.end = segment.end
        self._forget_held()

    def _forget_held(self) -> None:
        self.held, self.held_bytes, self._held_at = [], 0, {}

    def fresh(self) -> list[Segment]:
        """Segments that Spark has not heard of."""
        return [segment for number, segment in self.segments.items() if number > self.offered.segment]

    def offer(self, max_rows: int | None) -> bool:
        """Move the offer over what is fresh, as far as a micro-batch may go; False when nothing is."""
        fresh = self.fresh()
        if not fresh:
            return False
        last = fresh[0]
        for segment in fresh[1:]:
            if max_rows is not None and segment.end - fresh[0].first > max_rows:
                break
            last = segment
        self.offered = Offset(last.number, last.end)
        return True

    def awaits_commit(self) -> bool:
        """Whether deliveries are kept from the broker only because Spark has not said yet that their batch is done."""
        return any(number <= self.offered.segment for number in self._tags)

    def commit(self, segment: int) -> list[Segment]:
        """Everything up to here is in the targets; the segments that nobody needs any more.

        The last generation stays: the broker may deliver it again when an acknowledgement got lost on its way.
        """
        if segment <= self.committed:
            return []
        before, self.committed = self.committed, segment
        moved = [number for number in self.segments if before < number <= segment]
        for number in moved:
            for row, tags in self._tags.pop(number, {}).items():
                self._settle(number, row, tags)
        return [found for number, found in self.segments.items() if number <= before] if moved else []

    def forget(self, segment: Segment) -> list[str]:
        """The segment goes; the identities that outlive it."""
        known = self._known.pop(segment.number)
        del self.segments[segment.number]
        kept = []
        for row, one in enumerate(known):
            if one is None or self._places.get(one, (0, 0))[0] != segment.number:
                continue
            del self._places[one]
            kept.append(f"{_TO_REFUSE}{one}" if segment.first + row in self.refused else one)
        oldest = min((found.first for found in self.segments.values()), default=segment.end)
        self.refused = {position for position in self.refused if position >= oldest}
        return kept

    def remember(self, known: Iterable[str]) -> None:
        """Identities of messages that are done: another delivery of one is only acknowledged."""
        self._remembered.update({one.removeprefix(_TO_REFUSE): one.startswith(_TO_REFUSE) for one in known})

    def unremember(self, known: Iterable[str]) -> None:
        """Identities that were kept long enough."""
        for one in known:
            self._remembered.pop(one.removeprefix(_TO_REFUSE), None)

    def take_due(self) -> Due:
        """What is to be told to the broker now."""
        due, self.due = self.due, Due()
        return due

    def told(self, due: Due, *, are_gone: bool = True) -> None:
        """The broker heard it. A message that is dead-lettered now may come back one day, as a new one."""
        self.outstanding -= len(due.acks) + len(due.refusals)
        for _, known in due.refusals:
            if known is not None and are_gone:
                self._places.pop(known, None)
                self._remembered.pop(known, None)

    def tags(self) -> list[Any]:
        """Deliveries that nobody can tell the broker about yet."""
        written = [tag for rows in self._tags.values() for tags in rows.values() for tag in tags]
        return written + [tag for item in self.held for tag in item.tags]

    def disconnected(self) -> None:
        """Tags died with the connection. The broker delivers again what it was not told about; what is not written yet
        is then received once more."""
        self._tags, self.due, self.outstanding = {}, Due(), 0
        self._forget_held()
