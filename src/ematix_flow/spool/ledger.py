"""The state of every message (waiting, written, offered, committed) and the due answers to the broker; no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ematix_flow.spool.receiver import Delivery, identity
from ematix_flow.spool.segments import Segment

_TO_REFUSE = "!"


class SpoolOffset(NamedTuple):
    """A stream's position in the spool: the last segment read, and the number of messages up to its end."""

    segment: int = 0
    rows: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return the offset in the checkpoint's form."""
        return {"segment": self.segment, "rows": self.rows}

    def behind(self, segments: Sequence[Segment]) -> SpoolOffset:
        """Return this segment number with a position that is not below the end of any of these segments."""
        return SpoolOffset(self.segment, max([self.rows, *(segment.end for segment in segments)]))

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> SpoolOffset:
        """Return the offset that the checkpoint holds."""
        return cls(int(data["segment"]), int(data["rows"]))


@dataclass
class PendingMessage:
    """A message that is not in a segment yet, with the tags of all its deliveries."""

    message: Delivery
    known: str | None
    tags: list[Any]


@dataclass
class PendingAnswers:
    """Deliveries that may be answered to the broker now."""

    acks: list[Any] = field(default_factory=list)
    refusals: list[tuple[Any, str | None]] = field(default_factory=list)
    """Tag and identity of each message that was refused for good."""


@dataclass
class SpoolLedger:
    """The state of one spool; not thread-safe, callers lock it."""

    offered: SpoolOffset = field(default_factory=SpoolOffset)
    committed: int = 0
    end: int = 0
    """The position behind the last message that is written."""
    segments: dict[int, Segment] = field(default_factory=dict)
    held: list[PendingMessage] = field(default_factory=list)
    held_bytes: int = 0
    refused: set[int] = field(default_factory=set)
    """Positions of messages that the broker shall dead-letter."""
    due: PendingAnswers = field(default_factory=PendingAnswers)
    outstanding: int = 0
    """The number of deliveries that are not answered yet."""
    _known: dict[int, Sequence[str | None]] = field(default_factory=dict)
    _places: dict[str, tuple[int, int]] = field(default_factory=dict)
    _held_at: dict[str, int] = field(default_factory=dict)
    _remembered: dict[str, bool] = field(default_factory=dict)
    """Identities that outlived their segments; True where further deliveries are refused instead of acknowledged."""
    _tags: dict[int, dict[int, list[Any]]] = field(default_factory=dict)

    def restore(self, segment: Segment, known: Sequence[str | None]) -> None:
        """Add a segment that is on disk, with the identities of its messages."""
        self.segments[segment.number], self._known[segment.number] = segment, known
        self._places.update({one: (segment.number, row) for row, one in enumerate(known) if one is not None})

    def enqueue(self, message: Delivery) -> None:
        """Add one delivery: a new message is held, a redelivery of a known one is settled together with it."""
        known = identity(message.message_id, message.value)
        self.outstanding += 1
        if known is not None:
            if known in self._places:
                self._redelivered_held(*self._places[known], message.tag)
                return
            if known in self._remembered:
                self._redelivered(known, message.tag)
                return
            if known in self._held_at:
                self.held[self._held_at[known]].tags.append(message.tag)
                return
            self._held_at[known] = len(self.held)
        self.held.append(PendingMessage(message, known, [message.tag]))
        self.held_bytes += len(message.value)

    def _redelivered_held(self, number: int, row: int, tag: Any) -> None:
        if number <= self.committed:
            self._settle(number, row, [tag])
        else:
            self._tags.setdefault(number, {}).setdefault(row, []).append(tag)

    def _redelivered(self, known: str, tag: Any) -> None:
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
        """Record that the held messages are durable in this segment."""
        self.restore(segment, [item.known for item in self.held])
        self._tags[segment.number] = {row: item.tags for row, item in enumerate(self.held)}
        self.end = segment.end
        self._drop_pending()

    def _drop_pending(self) -> None:
        self.held, self.held_bytes, self._held_at = [], 0, {}

    def unoffered(self) -> list[Segment]:
        """Return the segments that have not been offered to Spark."""
        return [segment for number, segment in self.segments.items() if number > self.offered.segment]

    def offer(self, max_rows: int | None) -> bool:
        """Extend the offered range over new segments, up to `max_rows`; return False when there is no new segment."""
        fresh = self.unoffered()
        if not fresh:
            return False
        last = fresh[0]
        for segment in fresh[1:]:
            if max_rows is not None and segment.end - fresh[0].first > max_rows:
                break
            last = segment
        self.offered = SpoolOffset(last.number, last.end)
        return True

    def awaits_commit(self) -> bool:
        """Return whether offered deliveries stay unacknowledged because Spark has not yet reported their commit."""
        return any(number <= self.offered.segment for number in self._tags)

    def commit(self, segment: int) -> list[Segment]:
        """Mark everything up to this segment as committed, and return the segments that are no longer needed.

        The segments of the latest commit stay: the broker may deliver their messages again when an acknowledgement was
        lost on its way.
        """
        if segment <= self.committed:
            return []
        before, self.committed = self.committed, segment
        moved = [number for number in self.segments if before < number <= segment]
        for number in moved:
            for row, tags in self._tags.pop(number, {}).items():
                self._settle(number, row, tags)
        return [known_segment for number, known_segment in self.segments.items() if number <= before] if moved else []

    def remove_segment(self, segment: Segment) -> list[str]:
        """Remove the segment, and return the identities to retain beyond it, marked where the message is refused."""
        known = self._known.pop(segment.number)
        del self.segments[segment.number]
        kept = []
        for row, one in enumerate(known):
            if one is None or self._places.get(one, (0, 0))[0] != segment.number:
                continue
            del self._places[one]
            kept.append(f"{_TO_REFUSE}{one}" if segment.first + row in self.refused else one)
        oldest = min((known_segment.first for known_segment in self.segments.values()), default=segment.end)
        self.refused = {position for position in self.refused if position >= oldest}
        return kept

    def remember(self, known: Iterable[str]) -> None:
        """Retain identities of finished messages: another delivery of one is only answered, not stored again."""
        self._remembered.update({one.removeprefix(_TO_REFUSE): one.startswith(_TO_REFUSE) for one in known})

    def unremember(self, known: Iterable[str]) -> None:
        """Drop identities whose retention is over."""
        for one in known:
            self._remembered.pop(one.removeprefix(_TO_REFUSE), None)

    def due_answers(self) -> PendingAnswers:
        """Return the answers that are due to the broker, and clear them."""
        due, self.due = self.due, PendingAnswers()
        return due

    def acknowledged(self, due: PendingAnswers, *, are_gone: bool = True) -> None:
        """Record that the broker got these answers; with `are_gone`, a refused message that returns is a new one."""
        self.outstanding -= len(due.acks) + len(due.refusals)
        for _, known in due.refusals:
            if known is not None and are_gone:
                self._places.pop(known, None)
                self._remembered.pop(known, None)

    def tags(self) -> list[Any]:
        """Return the tags of deliveries that cannot be answered yet."""
        written = [tag for rows in self._tags.values() for tags in rows.values() for tag in tags]
        return written + [tag for item in self.held for tag in item.tags]

    def disconnected(self) -> None:
        """Drop all tags and unwritten messages: the broker delivers again what was not acknowledged."""
        self._tags, self.due, self.outstanding = {}, PendingAnswers(), 0
        self._drop_pending()
