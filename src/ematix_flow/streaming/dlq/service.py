"""Lists, replays, parks and purges the dead letters of a stream, in a table or a topic."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.catalog import backend_for
from ematix_flow.config.resolve import resolve
from ematix_flow.contract.stream import LetterTopic, TopicLetter
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import UnknownName, Unsupported
from ematix_flow.streaming.admin.status import recorded_action
from ematix_flow.streaming.dlq.dead_letter import DeadLetter, LetterSelection
from ematix_flow.streaming.dlq.letters import PENDING
from ematix_flow.streaming.dlq.locations import dead_letter_topic
from ematix_flow.streaming.dlq.replay import ReplayReport, replay_dead_letters
from ematix_flow.streaming.dlq.table import DeadLetterTable
from ematix_flow.streaming.runtime.decoding import payload_format_of

if TYPE_CHECKING:
    from ematix_flow.run_log.protocol import RunLog

_PLACE = re.compile(r"(\d+)[:@/](\d+)")


def list_letters(
    spec: StreamSpec, status: str | None = None, *, limit: int = 50, offset: int = 0, bodies: bool = False
) -> list[DeadLetter]:
    """Return letters, the newest first; payloads of a table only with `bodies`. An expired lease counts as none."""
    with _topic_letters(spec) as topic:
        if topic is not None:
            return topic.listed(offset + limit)[offset:] if status in (None, PENDING) else []
    at = now()
    letters = DeadLetterTable.of(spec).listed(status, limit=limit, offset=offset, bodies=bodies)
    return [letter.as_seen(at) for letter in letters]


def find_letter(spec: StreamSpec, letter_id: str) -> DeadLetter | None:
    """Return the letter with this id, or with the only id that begins so; None where there is none."""
    with _topic_letters(spec) as topic:
        if topic is not None:
            return topic.get(letter_id)
    letter = DeadLetterTable.of(spec).get(letter_id)
    return letter.as_seen(now()) if letter is not None else None


def letter_stats(spec: StreamSpec, at: datetime | None = None) -> dict[str, Any]:
    """Return letter counts by status and stage, and recent arrivals; for a topic only the total and those waiting."""
    with _topic_letters(spec) as topic:
        if topic is None:
            return DeadLetterTable.of(spec).stats(at)
        total, waiting = topic.topic.counts()
    depth = {"pending": waiting, "leased": 0, "parked": 0}
    return {"depth": depth, "by_stage": {}, "arrivals": {}, "scanned": total, "truncated": True}


def replay_letters(
    spec: StreamSpec, selection: LetterSelection, *, most_attempts: int | None = None, run_log: RunLog | None = None
) -> ReplayReport:
    """Replay the letters, or send them back to their topic."""
    with _topic_letters(spec) as topic:
        if topic is not None:
            return topic.replay(selection, run_log)
    return replay_dead_letters(spec, selection, most_attempts=most_attempts, run_log=run_log)


def park_letters(spec: StreamSpec, selection: LetterSelection) -> int:
    """Exclude the letters from replays; return how many."""
    with _topic_letters(spec) as topic:
        if topic is not None:
            return topic.park(selection)
    letters = DeadLetterTable.of(spec)
    return letters.park(_resolve_selection(letters, selection))


def purge_letters(spec: StreamSpec, selection: LetterSelection) -> int:
    """Delete the letters; return how many."""
    with _topic_letters(spec) as topic:
        if topic is not None:
            return topic.purge(selection)
    letters = DeadLetterTable.of(spec)
    return letters.purge(_resolve_selection(letters, selection))


def _resolve_selection(letters: DeadLetterTable, selection: LetterSelection) -> LetterSelection:
    """Return the selection with full ids; `first` becomes the ids of those letters, or an id that no letter has."""
    if selection.first is None:
        return letters.with_full_ids(selection)
    return LetterSelection(ids=tuple(one for one, _ in letters.waiting(selection)) or ("-",))


@contextmanager
def _topic_letters(spec: StreamSpec) -> Iterator[TopicDeadLetters | None]:
    """Yield the topic of the dead letters; None where a table holds them."""
    source = spec.sources[0]
    name, connection = dead_letter_topic(spec), resolve(source.connection).connection
    maker = backend_for(connection).dead_letter_topic if name is not None else None
    if name is None or maker is None:
        yield None
        return
    topic = maker(connection, name, spec.name, source.query)
    try:
        yield TopicDeadLetters(spec, topic)
    finally:
        topic.close()


@dataclass(frozen=True)
class TopicDeadLetters:
    """The dead letters of one stream in a topic; an id is `partition:offset`."""

    spec: StreamSpec
    topic: LetterTopic

    def listed(self, limit: int) -> list[DeadLetter]:
        """Return letters, the newest first."""
        return [self._letter(item) for item in self.topic.newest(limit)]

    def get(self, letter_id: str) -> DeadLetter | None:
        """Return the letter at a position; None where there is none."""
        item = self._find(letter_id)
        return self._letter(item) if item is not None else None

    def replay(self, selection: LetterSelection, run_log: RunLog | None) -> ReplayReport:
        """Send letters to their topic again: those selected by id, or all that were not sent yet."""
        report = ReplayReport()
        with recorded_action(run_log, self.spec.name, "dead letters", report.to_dict):
            if selection.ids:
                letters = [self._require(letter_id) for letter_id in selection.ids]
                report.taken = len(letters)
                report.succeeded = self.topic.resend(letters)
            else:
                report.succeeded = self.topic.resend_pending(selection.first)
                report.taken = report.succeeded
        return report

    def park(self, selection: LetterSelection) -> int:
        """Let replays begin after the newest letter; an earlier one can still be sent by its id."""
        if selection != LetterSelection():
            raise Unsupported(
                f"the dead letters of {self.spec.name} are in the topic {self.topic.topic!r}, which is parked as a whole",
                hint='say --all, or keep them in a table with dlq_store="table"',
            )
        return self.topic.skip_pending()

    def purge(self, selection: LetterSelection) -> int:
        """Delete the letters of the topic, from its beginning on."""
        if selection.ids or selection.first is not None:
            raise Unsupported(
                f"the dead letters of {self.spec.name} are in the topic {self.topic.topic!r}, which drops its oldest only",
                hint='say --all or --older-than, or keep them in a table with dlq_store="table"',
            )
        return self.topic.drop(now() - selection.older_than if selection.older_than is not None else None)

    def _require(self, letter_id: str) -> TopicLetter:
        item = self._find(letter_id)
        if item is None:
            raise UnknownName(
                f"{self.topic.topic} has no dead letter {letter_id!r}", hint=f"flow dlq list {self.spec.name}"
            )
        return item

    def _find(self, letter_id: str) -> TopicLetter | None:
        place = _PLACE.fullmatch(letter_id.strip())
        return self.topic.get(int(place[1]), int(place[2])) if place else None

    def _letter(self, item: TopicLetter) -> DeadLetter:
        return DeadLetter(
            id=f"{item.partition}:{item.offset}",
            pipeline=self.spec.name,
            stage=item.header("stage") or "?",
            error=item.header("error") or "?",
            target=item.header("target"),
            source_id=item.header("source-id"),
            position=item.header("position"),
            key=item.key,
            headers=item.own_headers,
            payload=item.value,
            payload_format=payload_format_of(self.spec),
            event_ts=None,
            failed_at=item.at,
            attempt=1,
            status=PENDING,
            leased_until=None,
            version=item.header("pipeline-version"),
            batch=int(item.header("batch") or 0),
        )
