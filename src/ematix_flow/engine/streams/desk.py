"""The DLQ service: list, show, count, replay, park and purge the dead letters of a stream, in a table or a topic."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.kafka.dead_letters import LetterTopic, TopicLetter
from ematix_flow.backends.kafka.topics import Topics
from ematix_flow.config.resolve import resolve
from ematix_flow.declare.connections import KafkaConnection
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.engine.streams.dead_letters import PENDING
from ematix_flow.engine.streams.decoding import payload_of
from ematix_flow.engine.streams.letter import Letter, Selection
from ematix_flow.engine.streams.letter_places import topic_of_records
from ematix_flow.engine.streams.letters import Letters
from ematix_flow.engine.streams.replay import Report, replay
from ematix_flow.engine.streams.standing import recorded
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import UnknownName, Unsupported

if TYPE_CHECKING:
    from ematix_flow.runlog.protocol import RunLog

_PLACE = re.compile(r"(\d+)[:@/](\d+)")


def listed(
    spec: StreamSpec, status: str | None = None, *, limit: int = 50, offset: int = 0, bodies: bool = False
) -> list[Letter]:
    """Return letters, the newest first; payloads of a table only with `bodies`. An expired lease counts as none."""
    with _topic(spec) as topic:
        if topic is not None:
            return topic.listed(offset + limit)[offset:] if status in (None, PENDING) else []
    at = now()
    found = Letters.of(spec).listed(status, limit=limit, offset=offset, bodies=bodies)
    return [letter.as_seen(at) for letter in found]


def found(spec: StreamSpec, said: str) -> Letter | None:
    """Return the letter with this id, or with the only id that begins so; None where there is none."""
    with _topic(spec) as topic:
        if topic is not None:
            return topic.get(said)
    letter = Letters.of(spec).get(said)
    return letter.as_seen(now()) if letter is not None else None


def stats(spec: StreamSpec, at: datetime | None = None) -> dict[str, Any]:
    """Return letter counts by status and stage, and recent arrivals; for a topic only the total and those waiting."""
    with _topic(spec) as topic:
        if topic is None:
            return Letters.of(spec).stats(at)
        total, waiting = topic.topic.counted()
    depth = {"pending": waiting, "leased": 0, "parked": 0}
    return {"depth": depth, "by_stage": {}, "arrivals": {}, "scanned": total, "truncated": True}


def replayed(
    spec: StreamSpec, selection: Selection, *, most_attempts: int | None = None, run_log: RunLog | None = None
) -> Report:
    """Replay the letters, or send them back to their topic."""
    with _topic(spec) as topic:
        if topic is not None:
            return topic.replay(selection, run_log)
    return replay(spec, selection, most_attempts=most_attempts, run_log=run_log)


def parked(spec: StreamSpec, selection: Selection) -> int:
    """Exclude the letters from replays; return how many."""
    with _topic(spec) as topic:
        if topic is not None:
            return topic.park(selection)
    letters = Letters.of(spec)
    return letters.park(_counted_out(letters, selection))


def purged(spec: StreamSpec, selection: Selection) -> int:
    """Delete the letters; return how many."""
    with _topic(spec) as topic:
        if topic is not None:
            return topic.purge(selection)
    letters = Letters.of(spec)
    return letters.purge(_counted_out(letters, selection))


def _counted_out(letters: Letters, selection: Selection) -> Selection:
    """Return the selection with full ids; `first` becomes the ids of those letters, or an id that no letter has."""
    if selection.first is None:
        return letters.whole(selection)
    return Selection(ids=tuple(one for one, _ in letters.waiting(selection)) or ("-",))


@contextmanager
def _topic(spec: StreamSpec) -> Iterator[TopicLetters | None]:
    """Yield the topic of the dead letters; None where a table holds them."""
    name, connection = topic_of_records(spec), resolve(spec.sources[0].connection).connection
    if name is None or not isinstance(connection, KafkaConnection):
        yield None
        return
    topic = LetterTopic(connection, name, spec.name)
    try:
        yield TopicLetters(spec, topic)
    finally:
        topic.close()


@dataclass(frozen=True)
class TopicLetters:
    """The dead letters of one stream in a topic; an id is `partition:offset`."""

    spec: StreamSpec
    topic: LetterTopic

    def listed(self, limit: int) -> list[Letter]:
        """Return letters, the newest first."""
        return [self._letter(item) for item in self.topic.newest(limit)]

    def get(self, said: str) -> Letter | None:
        """Return the letter at a position; None where there is none."""
        item = self._found(said)
        return self._letter(item) if item is not None else None

    def replay(self, selection: Selection, run_log: RunLog | None) -> Report:
        """Send letters to their topic again: those selected by id, or all that were not sent yet."""
        report = Report()
        with recorded(run_log, self.spec.name, "dead letters", report.to_dict):
            if selection.ids:
                letters = [self._known(said) for said in selection.ids]
                report.taken = len(letters)
                report.succeeded = self.topic.send_back(letters, self._home)
            else:
                report.succeeded = self.topic.send_back_waiting(self._home, selection.first)
                report.taken = report.succeeded
        return report

    def park(self, selection: Selection) -> int:
        """Let replays begin after the newest letter; an earlier one can still be sent by its id."""
        if selection != Selection():
            raise Unsupported(
                f"the dead letters of {self.spec.name} are in the topic {self.topic.topic!r}, which is parked as a whole",
                hint='say --all, or keep them in a table with dlq_store="table"',
            )
        return self.topic.pass_over_waiting()

    def purge(self, selection: Selection) -> int:
        """Delete the letters of the topic, from its beginning on."""
        if selection.ids or selection.first is not None:
            raise Unsupported(
                f"the dead letters of {self.spec.name} are in the topic {self.topic.topic!r}, which drops its oldest only",
                hint='say --all or --older-than, or keep them in a table with dlq_store="table"',
            )
        return self.topic.drop(now() - selection.older_than if selection.older_than is not None else None)

    def _known(self, said: str) -> TopicLetter:
        item = self._found(said)
        if item is None:
            raise UnknownName(f"{self.topic.topic} has no dead letter {said!r}", hint=f"flow dlq list {self.spec.name}")
        return item

    def _found(self, said: str) -> TopicLetter | None:
        place = _PLACE.fullmatch(said.strip())
        return self.topic.get(int(place[1]), int(place[2])) if place else None

    @property
    def _home(self) -> str | None:
        """Return the topic for letters that do not contain the topic they came from."""
        return next(iter(Topics.of(self.spec.sources[0].query).names), None)

    def _letter(self, item: TopicLetter) -> Letter:
        return Letter(
            id=f"{item.partition}:{item.offset}",
            pipeline=self.spec.name,
            stage=item.said("stage") or "?",
            error=item.said("error") or "?",
            target=item.said("target"),
            source_id=item.said("source-id"),
            position=item.said("position"),
            key=item.key,
            headers=item.own_headers,
            payload=item.value,
            payload_format=payload_of(self.spec),
            event_ts=None,
            failed_at=item.at,
            attempt=1,
            status=PENDING,
            leased_until=None,
            version=item.said("pipeline-version"),
            batch=int(item.said("batch") or 0),
        )
