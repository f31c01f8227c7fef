"""The spool: a ledger with files beneath it, between Spark on one side and the intake on the other."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from ematix_flow.families.lake.s3.path import S3Path
from ematix_flow.families.spool import segments
from ematix_flow.families.spool.folder import Folder
from ematix_flow.families.spool.ledger import Due, Ledger, Offset
from ematix_flow.families.spool.receiver import Limits, Message
from ematix_flow.families.spool.segments import Segment
from ematix_flow.foundation.errors import FlowError, RunFailed

NOTE = "committed.json"
_NEXT = "next"
_IDS, _REFUSED = ".ids", ".refused"
_NUMBERS_AT_ONCE = 1_000


class Spool:
    """Nothing is lost: it is on disk before Spark hears of it, and the broker is told only after Spark committed it.
    Nothing with an id is doubled: a second delivery is recognised."""

    def __init__(self, folder: Folder, limits: Limits, topic: str) -> None:
        self._folder, self._limits, self._topic = folder, limits, topic
        self._ledger = Ledger()
        self._changed = threading.Condition()
        self._planned: Offset | None = None
        self._began = False
        self._starts_over_all = False
        self._is_writing = False
        self._number = self._reserved = 0
        self._failure: FlowError | None = None
        self._idle_since: float | None = None
        self._remembered: deque[tuple[str, list[str]]] = deque()
        self._note_seen: tuple[object, ...] | None = None
        self._note_asked = 0.0
        self._useless: set[Segment] = set()
        self.is_drained = False

    # Spark's side

    def planned(self, end: Offset) -> None:
        """Spark's checkpoint knows of everything up to here: told before the spool begins."""
        if not self._began:
            self._planned = max(self._planned or end, end)

    def plan(self, start: Offset, end: Offset) -> list[Segment]:
        """The segments of a batch: the same whenever it is asked for."""
        self.planned(end)
        self._folder.take()
        with self._changed:
            known = list(self._ledger.segments.values()) if self._began else self._listed()
        chosen = sorted(segment for segment in known if start.segment < segment.number <= end.segment)
        there, wanted = sum(segment.rows for segment in chosen), end.rows - start.rows
        if there != wanted:
            raise RunFailed(
                f"the spool {self._folder.root} has {there} of the {wanted} messages that the checkpoint wants to read again",
                hint="bring the folder back as it was; flow doctor checkpoint NAME says what else there is",
            )
        return chosen

    def begin(self) -> None:
        """Take over what an earlier process left: what Spark planned stays, what it never heard of is dropped, because
        the broker delivers it again. A query that drains asks for offsets before it tells of plans: all stays then.
        """
        if self._began:
            return
        self._folder.take()
        self._folder.sweep(".arrow")
        names, listed = self._folder.names(), self._listed()
        with self._changed:
            for segment in listed:
                if self._planned is not None and segment.number > self._planned.segment:
                    self._folder.remove(segment.name)
                else:
                    self._ledger.restore(segment, segments.identities(self._folder.path(segment.name)))
            for name in names:
                if name.endswith(_IDS):
                    self._remember(name, (self._folder.text(name) or "").splitlines())
            kept = list(self._ledger.segments.values())
            self._starts_over_all = self._planned is None and bool(kept)
            begins = self._planned or self._noted().behind(kept)
            self._number = max(int(self._folder.text(_NEXT) or 0), begins.segment, *(one.number for one in listed), 0)
            self._reserved = self._number
            self._ledger.offered, self._ledger.end = begins, begins.rows
            self._read_refusals()
            self._began = True
        self.hear(at_once=True)

    def initial(self) -> Offset:
        """Where a new checkpoint begins: behind what is noted as committed, because the targets have that."""
        self._folder.take()
        with self._changed:
            known = list(self._ledger.segments.values()) if self._began else self._listed()
            noted = self._noted()
            ahead = [segment.first for segment in known if segment.number > noted.segment]
            return Offset(noted.segment, min(ahead)) if ahead else noted.behind(known)

    def _noted(self) -> Offset:
        text = self._folder.text(NOTE)
        return Offset.of(json.loads(text)) if text else Offset()

    def _listed(self) -> list[Segment]:
        found = (Segment.of(name) for name in self._folder.names())
        return [segment for segment in found if segment is not None]

    def latest(self, wait: float = 0.0) -> Offset:
        """How far the next batch may go; waits a little for something new."""
        deadline = time.monotonic() + wait
        with self._changed:
            while True:
                if self._failure is not None:
                    raise self._failure
                left = deadline - time.monotonic()
                if self._offered() or left <= 0:
                    return self._ledger.offered
                self._changed.wait(min(left, 1.0))

    def _offered(self) -> bool:
        """Whether there is something new to say."""
        if self._limits.drain and not self.is_drained:
            return False
        if self._starts_over_all:
            if self._is_writing:
                return False
            # Spark knows where it stands, and we do not: a number above all that were ever given is never behind it.
            self._starts_over_all = False
            self._ledger.offered = Offset(self._next_number(), self._ledger.end)
            return True
        if self._ledger.offer(None if self._limits.drain else self._limits.max_rows):
            self._idle_since = None
            return True
        return self._limits.drain or self._beat()

    def _beat(self) -> bool:
        """Spark says that a batch is done only when it plans the next one, and the broker, which waits for that, sends
        nothing that could be planned: an empty batch breaks the circle."""
        now = time.monotonic()
        if self._is_writing or not self._ledger.awaits_commit():
            self._idle_since = None
            return False
        self._idle_since = self._idle_since if self._idle_since is not None else now
        if now - self._idle_since < self._limits.heartbeat_seconds:
            return False
        self._idle_since = None
        self._ledger.offered = Offset(self._next_number(), self._ledger.offered.rows)
        return True

    def commit(self, end: Offset) -> None:
        """A batch that ends here is in the targets and in the checkpoint."""
        with self._changed:
            if end.segment <= self._ledger.offered.segment:  # a note of another life would be beyond
                self._read_refusals()
                self._useless.update(self._ledger.commit(end.segment))  # one that waits to be dropped is told again
                self._changed.notify_all()

    @property
    def is_settled(self) -> bool:
        """Whether everything that was offered is committed."""
        with self._changed:
            return self._ledger.committed >= self._ledger.offered.segment or not self._ledger.awaits_commit()

    # the intake's side

    def admit(self, messages: Sequence[Message]) -> None:
        """Take what was received."""
        with self._changed:
            for message in messages:
                self._ledger.admit(message)

    @property
    def held(self) -> tuple[int, int]:
        """Messages, and their bytes, that are not written yet."""
        return len(self._ledger.held), self._ledger.held_bytes

    def store(self) -> None:
        """Write what is held, so that it lasts, and let Spark have it."""
        with self._changed:
            if not self._ledger.held:
                return
            segment = Segment(self._next_number(), self._ledger.end, len(self._ledger.held))
            messages = [item.message for item in self._ledger.held]
            # No number may be given to an empty batch now: this segment would lie behind it, and nobody would read it.
            self._is_writing = True
        try:
            self._folder.write(segment.name, segments.encode(segment, messages, self._topic))
            with self._changed:
                self._ledger.stored(segment)
                self._changed.notify_all()
        finally:
            self._is_writing = False

    def _next_number(self) -> int:
        """Never the same twice, whatever dies."""
        self._number += 1
        if self._number > self._reserved:
            self._reserved = self._number + _NUMBERS_AT_ONCE
            self._folder.write(_NEXT, str(self._reserved).encode())
        return self._number

    def take_due(self) -> Due:
        """What the broker can be told now."""
        with self._changed:
            return self._ledger.take_due()

    def told(self, due: Due, *, are_gone: bool = True) -> None:
        """The broker heard it, and what was refused is gone, or comes a few times more."""
        with self._changed:
            self._ledger.told(due, are_gone=are_gone)

    @property
    def outstanding(self) -> int:
        """Deliveries that the broker waits to hear about."""
        return self._ledger.outstanding

    def tags(self) -> list[Any]:
        """Deliveries that nobody can tell the broker about yet."""
        with self._changed:
            return self._ledger.tags()

    def disconnected(self) -> None:
        """The connection is gone, and every tag with it."""
        with self._changed:
            self._ledger.disconnected()

    def drained(self) -> None:
        """The broker has nothing more."""
        with self._changed:
            self.is_drained = True
            self._changed.notify_all()

    def fail(self, error: FlowError) -> None:
        """The intake cannot go on; Spark hears why."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def hear(self, *, at_once: bool = False) -> None:
        """Read the note that the stream's own process leaves after every commit, sooner than Spark tells it."""
        now = time.monotonic()
        if not at_once and now - self._note_asked < self._folder.look_seconds:
            return
        self._note_asked = now
        stamp = self._folder.stamp(NOTE)
        if stamp is not None and stamp != self._note_seen:
            self._note_seen = stamp
            self.commit(self._noted())

    def tidy(self) -> None:
        """Drop segments that nobody needs, their identities last a while longer."""
        with self._changed:
            useless, self._useless = sorted(self._useless), set()
            dropped = [(segment, self._ledger.forget(segment)) for segment in useless]
        known = [one for _, kept in dropped for one in kept]
        if known:
            name = f"{useless[0].number:012d}-{useless[-1].number:012d}{_IDS}"
            self._folder.write(name, "\n".join(known).encode())
            with self._changed:
                self._remember(name, known)
        for segment, _ in dropped:
            self._folder.remove(segment.name)
        if dropped:
            self._forget_old()

    def _remember(self, name: str, known: list[str]) -> None:
        self._remembered.append((name, known))
        self._ledger.remember(known)

    def _forget_old(self) -> None:
        kept = sum(len(known) for _, known in self._remembered)
        while self._remembered and kept - len(self._remembered[0][1]) >= self._limits.remember:
            name, known = self._remembered.popleft()
            kept -= len(known)
            with self._changed:
                self._ledger.unremember(known)
            self._folder.remove(name)
        oldest = min((segment.first for segment in list(self._ledger.segments.values())), default=self._ledger.end)
        for name in self._folder.names():
            if name.endswith(_REFUSED) and max(self._positions(name), default=-1) < oldest:
                self._folder.remove(name)

    def _read_refusals(self) -> None:
        """Anew each time: a batch that is done again may have taken some of its refusals back."""
        named = [name for name in self._folder.names() if name.endswith(_REFUSED)]
        self._ledger.refused = {position for name in named for position in self._positions(name)}

    def _positions(self, name: str) -> list[int]:
        return [int(position) for position in json.loads(self._folder.text(name) or "[]")]

    def path(self, segment: Segment) -> str | S3Path:
        """Where a segment is."""
        return self._folder.path(segment.name)

    def leave(self) -> None:
        """Let go of the folder."""
        self._folder.leave()


def leave_note(folder: Folder, end: Offset) -> None:
    """Told by the stream's own process: everything up to here is committed."""
    folder.write(NOTE, json.dumps(end.told()).encode(), durable=False)


def leave_refusals(folder: Folder, positions: Sequence[int], batch: str = "") -> None:
    """Told before the commit: these messages shall be dead-lettered by the broker instead of being acknowledged."""
    name = f"{batch or f'{min(positions, default=0):015d}-{time.time_ns()}'}{_REFUSED}"
    if positions or (batch and name in folder.names()):
        folder.write(name, json.dumps(sorted(positions)).encode())
