"""The spool: a ledger and its files, between Spark on one side and the receiver thread on the other."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from ematix_flow.foundation.errors import FlowError, RunFailed
from ematix_flow.spool import segments
from ematix_flow.spool.folder import SpoolFolder
from ematix_flow.spool.ledger import PendingAnswers, SpoolLedger, SpoolOffset
from ematix_flow.spool.receiver import Delivery, SpoolLimits
from ematix_flow.spool.segments import Segment
from ematix_flow.storage.s3_path import S3Path

NOTE = "committed.json"
_NEXT = "next"
_IDS, _REFUSED = ".ids", ".refused"
_NUMBERS_AT_ONCE = 1_000


class Spool:
    """One durable queue of messages between a broker and Spark, safe to use from several threads.

    No message is lost: it is on disk before Spark reads it, and is acknowledged only after Spark committed it. No
    message with an id is duplicated: a second delivery is recognised.
    """

    def __init__(self, folder: SpoolFolder, limits: SpoolLimits, topic: str) -> None:
        self._folder, self._limits, self._topic = folder, limits, topic
        self._ledger = SpoolLedger()
        self._changed = threading.Condition()
        self._planned: SpoolOffset | None = None
        self._began = False
        self._starts_over_all = False
        self._is_writing = False
        self._number = self._reserved = 0
        self._failure: FlowError | None = None
        self._idle_since: float | None = None
        self._remembered: deque[tuple[str, list[str]]] = deque()
        self._note_seen: tuple[object, ...] | None = None
        self._note_read_at = 0.0
        self._useless: set[Segment] = set()
        self.is_drained = False

    # Spark's side

    def planned(self, end: SpoolOffset) -> None:
        """Record that Spark's checkpoint contains everything up to `end`; without effect after `begin`."""
        if not self._began:
            self._planned = max(self._planned or end, end)

    def plan(self, start: SpoolOffset, end: SpoolOffset) -> list[Segment]:
        """Return the segments of a batch, the same on every call; raise RunFailed when messages are missing."""
        self.planned(end)
        self._folder.acquire()
        with self._changed:
            known = list(self._ledger.segments.values()) if self._began else self._listed()
        chosen = sorted(segment for segment in known if start.segment < segment.number <= end.segment)
        rows, wanted = sum(segment.rows for segment in chosen), end.rows - start.rows
        if rows != wanted:
            raise RunFailed(
                f"the spool {self._folder.root} has {rows} of the {wanted} messages that the checkpoint wants to read again",
                hint="bring the folder back as it was; flow doctor checkpoint NAME says what else there is",
            )
        return chosen

    def begin(self) -> None:
        """Restore the state that an earlier process left on disk.

        Segments that Spark planned stay; unplanned ones are deleted, because the broker delivers their messages again.
        A draining query requests offsets before it reports a plan: then all segments stay.
        """
        if self._began:
            return
        self._folder.acquire()
        self._folder.sweep(".arrow")
        names, listed = self._folder.names(), self._listed()
        with self._changed:
            for segment in listed:
                if self._planned is not None and segment.number > self._planned.segment:
                    self._folder.remove(segment.name)
                else:
                    self._ledger.restore(segment, segments.segment_identities(self._folder.path(segment.name)))
            for name in names:
                if name.endswith(_IDS):
                    self._remember(name, (self._folder.text(name) or "").splitlines())
            kept = list(self._ledger.segments.values())
            self._starts_over_all = self._planned is None and bool(kept)
            begins = self._planned or self._noted_commit().behind(kept)
            self._number = max(int(self._folder.text(_NEXT) or 0), begins.segment, *(one.number for one in listed), 0)
            self._reserved = self._number
            self._ledger.offered, self._ledger.end = begins, begins.rows
            self._read_refusals()
            self._began = True
        self.read_commit_note(at_once=True)

    def initial(self) -> SpoolOffset:
        """Return the start of a new checkpoint: behind the commit note, as the targets have everything before it."""
        self._folder.acquire()
        with self._changed:
            known = list(self._ledger.segments.values()) if self._began else self._listed()
            noted = self._noted_commit()
            ahead = [segment.first for segment in known if segment.number > noted.segment]
            return SpoolOffset(noted.segment, min(ahead)) if ahead else noted.behind(known)

    def _noted_commit(self) -> SpoolOffset:
        text = self._folder.text(NOTE)
        return SpoolOffset.of(json.loads(text)) if text else SpoolOffset()

    def _listed(self) -> list[Segment]:
        segments = (Segment.of(name) for name in self._folder.names())
        return [segment for segment in segments if segment is not None]

    def latest(self, wait: float = 0.0) -> SpoolOffset:
        """Return the end of the next batch after at most `wait` seconds; raise the receiver thread's failure."""
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
        """Move the offered offset forward where possible; return whether `latest` can answer now."""
        if self._limits.drain and not self.is_drained:
            return False
        if self._starts_over_all:
            if self._is_writing:
                return False
            # Spark's offset is unknown here: a number above all that were ever used is never behind it.
            self._starts_over_all = False
            self._ledger.offered = SpoolOffset(self._next_number(), self._ledger.end)
            return True
        if self._ledger.offer(None if self._limits.drain else self._limits.max_rows):
            self._idle_since = None
            return True
        return self._limits.drain or self._beat()

    def _beat(self) -> bool:
        """Offer an empty batch when unacknowledged messages have waited too long; return whether it did.

        Spark reports a commit only when it plans the next batch, and a broker that waits for acknowledgements sends
        nothing that could be planned; the empty batch breaks this deadlock.
        """
        now = time.monotonic()
        if self._is_writing or not self._ledger.awaits_commit():
            self._idle_since = None
            return False
        self._idle_since = self._idle_since if self._idle_since is not None else now
        if now - self._idle_since < self._limits.heartbeat_seconds:
            return False
        self._idle_since = None
        self._ledger.offered = SpoolOffset(self._next_number(), self._ledger.offered.rows)
        return True

    def commit(self, end: SpoolOffset) -> None:
        """Record that the batch that ends here is in the targets and in the checkpoint."""
        with self._changed:
            if end.segment <= self._ledger.offered.segment:  # a commit note of an earlier checkpoint may lie beyond
                self._read_refusals()
                self._useless.update(self._ledger.commit(end.segment))  # may return again a segment not yet deleted
                self._changed.notify_all()

    @property
    def is_settled(self) -> bool:
        """Return whether every offered message is committed."""
        with self._changed:
            return self._ledger.committed >= self._ledger.offered.segment or not self._ledger.awaits_commit()

    # the receiver thread's side

    def enqueue(self, messages: Sequence[Delivery]) -> None:
        """Enqueue received messages."""
        with self._changed:
            for message in messages:
                self._ledger.enqueue(message)

    @property
    def pending(self) -> tuple[int, int]:
        """Return the number of messages, and of their bytes, that are not written yet."""
        return len(self._ledger.held), self._ledger.held_bytes

    def write_pending(self) -> None:
        """Write the held messages durably as one segment, and make it available to Spark."""
        with self._changed:
            if not self._ledger.held:
                return
            segment = Segment(self._next_number(), self._ledger.end, len(self._ledger.held))
            messages = [item.message for item in self._ledger.held]
            # An empty batch must not take the next number now: Spark would then skip this segment's lower one.
            self._is_writing = True
        try:
            self._folder.write(segment.name, segments.encode_segment(segment, messages, self._topic))
            with self._changed:
                self._ledger.stored(segment)
                self._changed.notify_all()
        finally:
            self._is_writing = False

    def _next_number(self) -> int:
        """Return a number that is never used twice, even across crashes."""
        self._number += 1
        if self._number > self._reserved:
            self._reserved = self._number + _NUMBERS_AT_ONCE
            self._folder.write(_NEXT, str(self._reserved).encode())
        return self._number

    def due_answers(self) -> PendingAnswers:
        """Return the answers that are due to the broker, and clear them."""
        with self._changed:
            return self._ledger.due_answers()

    def acknowledged(self, due: PendingAnswers, *, are_gone: bool = True) -> None:
        """Record that the broker got these answers; with `are_gone`, it will not redeliver the refused messages."""
        with self._changed:
            self._ledger.acknowledged(due, are_gone=are_gone)

    @property
    def outstanding(self) -> int:
        """Return the number of deliveries that are not answered yet."""
        return self._ledger.outstanding

    def tags(self) -> list[Any]:
        """Return the tags of deliveries that cannot be answered yet."""
        with self._changed:
            return self._ledger.tags()

    def disconnected(self) -> None:
        """Drop all delivery tags: they end with the connection."""
        with self._changed:
            self._ledger.disconnected()

    def drained(self) -> None:
        """Record that the broker has no more messages."""
        with self._changed:
            self.is_drained = True
            self._changed.notify_all()

    def fail(self, error: FlowError) -> None:
        """Record the failure of the receiver thread; `latest` raises it."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def read_commit_note(self, *, at_once: bool = False) -> None:
        """Read the commit note, which the stream's process writes after every commit, earlier than Spark reports it."""
        now = time.monotonic()
        if not at_once and now - self._note_read_at < self._folder.look_seconds:
            return
        self._note_read_at = now
        stamp = self._folder.stamp(NOTE)
        if stamp is not None and stamp != self._note_seen:
            self._note_seen = stamp
            self.commit(self._noted_commit())

    def clean_up(self) -> None:
        """Delete segments that are no longer needed; their identities are retained for a while."""
        with self._changed:
            useless, self._useless = sorted(self._useless), set()
            dropped = [(segment, self._ledger.remove_segment(segment)) for segment in useless]
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
        """Read all refusals again: a repeated batch may have withdrawn some of them."""
        named = [name for name in self._folder.names() if name.endswith(_REFUSED)]
        self._ledger.refused = {position for name in named for position in self._positions(name)}

    def _positions(self, name: str) -> list[int]:
        return [int(position) for position in json.loads(self._folder.text(name) or "[]")]

    def path(self, segment: Segment) -> str | S3Path:
        """Return the full path of a segment."""
        return self._folder.path(segment.name)

    def release(self) -> None:
        """Release the folder's lock."""
        self._folder.release()


def write_commit_note(folder: SpoolFolder, end: SpoolOffset) -> None:
    """Write the commit note: everything up to `end` is committed. Called in the stream's own process."""
    folder.write(NOTE, json.dumps(end.to_dict()).encode(), durable=False)


def write_refusals(folder: SpoolFolder, positions: Sequence[int], batch: str = "") -> None:
    """Record, before the commit, the messages that the broker shall dead-letter instead of being acknowledged."""
    name = f"{batch or f'{min(positions, default=0):015d}-{time.time_ns()}'}{_REFUSED}"
    if positions or (batch and name in folder.names()):
        folder.write(name, json.dumps(sorted(positions)).encode())
