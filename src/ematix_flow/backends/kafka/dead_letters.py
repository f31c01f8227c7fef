"""A topic of dead letters: reading its newest messages, and resending messages to their source topics."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from typing import Any

from ematix_flow.backends.kafka.client import KafkaClient, Part, confluent_kafka
from ematix_flow.backends.kafka.errors import translate
from ematix_flow.backends.kafka.login import KafkaLogin
from ematix_flow.backends.kafka.topics import TopicSelection
from ematix_flow.contract.stream import LetterTopic, TopicLetter
from ematix_flow.declare.connections import KafkaConnection
from ematix_flow.foundation.errors import PlanError, Unreachable

PATIENCE_SECONDS = 30.0
MOST_AT_ONCE = 5_000
"""The most letters of one transaction."""


class KafkaDeadLetterTopic(LetterTopic):
    """The dead letters of one stream in a topic; the offsets of a separate consumer group record what was sent back."""

    def __init__(self, connection: KafkaConnection, topic: str, stream: str, query: str) -> None:
        self.topic, self._stream = topic, stream
        self._origin = next(iter(TopicSelection.of(query).names), None)
        """The topic for letters that do not contain the topic they came from."""
        self._settings = KafkaLogin.of(connection).for_librdkafka()
        self._group = f"ematix-flow-{stream}-dead-letters"
        self._client = KafkaClient(connection, self._group)

    @property
    def label(self) -> str:
        """Return the cluster's name in messages to users."""
        return self._client.label

    def newest(self, limit: int) -> list[TopicLetter]:
        """Return up to `limit` letters, the newest first."""
        first, begins = self._bounds()
        found: dict[int, list[TopicLetter]] = {}
        span = limit
        # Letters of other streams and transaction markers take offsets, too: look further back until it is enough.
        while ranges := {
            (topic, number): (max(first[topic, number], begin - span), begin)
            for (topic, number), begin in begins.items()
            if begin > first[topic, number] and len(found.get(number, ())) < limit
        }:
            for item in self._read(ranges):
                if self._is_ours(item):
                    found.setdefault(item.partition, []).append(item)
            begins = {part: ranges[part][0] if part in ranges else begin for part, begin in begins.items()}
            span *= 2
        letters = [item for items in found.values() for item in items]
        return sorted(letters, key=lambda item: (item.at, item.offset), reverse=True)[:limit]

    def get(self, partition: int, offset: int) -> TopicLetter | None:
        """Return the letter at an offset; None where there is none."""
        part = (self.topic, partition)
        first, last = self._bounds()
        if part not in first or not first[part] <= offset < last[part]:
            return None
        return next(iter(self._read({part: (offset, offset + 1)})), None)

    def pending(self) -> dict[Part, tuple[int, int]]:
        """Return the range of offsets in each partition that was not sent back yet."""
        first, last = self._bounds()
        done = self._client.committed(first)
        return {part: (max(first[part], done.get(part) or 0), last[part]) for part in first}

    def counts(self) -> tuple[int, int]:
        """Return how many offsets the topic holds, and how many of them were not sent back yet."""
        first, last = self._bounds()
        waiting = sum(end - begin for begin, end in self.pending().values())
        return sum(last[part] - first[part] for part in first), waiting

    def skip_pending(self) -> int:
        """Commit the current ends, so that replays begin behind them; return the number of offsets skipped."""
        waiting = {part: places for part, places in self.pending().items() if places[1] > places[0]}
        self._client.commit({part: end for part, (_, end) in waiting.items()})
        return sum(end - begin for begin, end in waiting.values())

    def drop(self, before: datetime | None) -> int:
        """Delete all messages, or those older than `before`; return the number of offsets deleted."""
        first, ends = self._bounds()
        if before is not None:
            ends = self._client.at(first, int(before.timestamp() * 1000))
        ends = {part: end for part, end in ends.items() if end > first[part]}
        self._client.drop_before(ends)
        return sum(end - first[part] for part, end in ends.items())

    def resend(self, letters: Sequence[TopicLetter]) -> int:
        """Send these letters again, even if they were sent before; return their number."""
        with self._producing() as producer:
            self._in_one(producer, letters, {})
        return len(letters)

    def resend_pending(self, most: int | None = None) -> int:
        """Send pending letters and their offsets in transactions that fence any other replay; return the count."""
        sent = 0
        with self._producing() as producer:
            while most is None or sent < most:
                limit = MOST_AT_ONCE if most is None else min(MOST_AT_ONCE, most - sent)
                some = self._next(limit)
                if not some:
                    break
                ends: dict[Part, int] = {}
                for letter in some:
                    part = (self.topic, letter.partition)
                    ends[part] = max(ends.get(part, 0), letter.offset + 1)
                ours = [letter for letter in some if self._is_ours(letter)]
                self._in_one(producer, ours, ends)
                sent += len(ours)
        return sent

    def close(self) -> None:
        """Close the sessions."""
        self._client.close()

    def _is_ours(self, letter: TopicLetter) -> bool:
        """Return whether the letter belongs to this stream: several streams may share a topic."""
        return letter.header("pipeline-name") in (None, self._stream)

    def _next(self, limit: int) -> list[TopicLetter]:
        ranges, left = dict[Part, tuple[int, int]](), limit
        for part, (begin, end) in self.pending().items():
            stop = min(end, begin + left)
            if stop > begin:
                ranges[part] = (begin, stop)
                left -= stop - begin
        return list(self._read(ranges))

    def _bounds(self) -> tuple[dict[Part, int], dict[Part, int]]:
        parts = self._client.partitions(TopicSelection(names=(self.topic,)))
        return self._client.beginnings(parts), self._client.ends(parts)

    def _read(self, ranges: Mapping[Part, tuple[int, int]]) -> Iterator[TopicLetter]:
        """Yield the messages in these offset ranges; offsets of transaction markers hold none."""
        open_ = {part: end for part, (begin, end) in ranges.items() if end > begin}
        if not open_:
            return
        own = {"group.id": self._group, "enable.auto.commit": False, "enable.partition.eof": True,
               "isolation.level": "read_committed", "auto.offset.reset": "earliest"}  # fmt: skip
        consumer = confluent_kafka.Consumer({**self._settings, **own})
        deadline = time.monotonic() + PATIENCE_SECONDS
        try:
            consumer.assign([confluent_kafka.TopicPartition(*part, ranges[part][0]) for part in open_])
            while open_:
                if time.monotonic() > deadline:
                    raise Unreachable(f"{self.label} does not answer in time", hint="try again")
                message = consumer.poll(0.5)
                if message is None:
                    continue
                part, error = (message.topic(), message.partition()), message.error()
                if error is not None:
                    if error.code() != confluent_kafka.KafkaError._PARTITION_EOF:
                        raise translate(confluent_kafka.KafkaException(error), at=self.label)
                    open_.pop(part, None)
                    continue
                deadline = time.monotonic() + PATIENCE_SECONDS
                if part in open_ and message.offset() < open_[part]:
                    yield _letter(message)
                if part in open_ and message.offset() >= open_[part] - 1:
                    del open_[part]
        finally:
            consumer.close()

    @contextmanager
    def _producing(self) -> Iterator[Any]:
        producer = confluent_kafka.Producer(
            {**self._settings, "transactional.id": f"{self._group}-replay", "partitioner": "murmur2_random"}
        )
        self._request(lambda: producer.init_transactions(PATIENCE_SECONDS))
        yield producer

    def _in_one(self, producer: Any, letters: Sequence[TopicLetter], ends: Mapping[Part, int]) -> None:
        self._request(producer.begin_transaction)
        try:
            for letter in letters:
                self._produce(producer, letter)
            if ends:
                consumer = confluent_kafka.Consumer(
                    {**self._settings, "group.id": self._group, "enable.auto.commit": False}
                )
                places = [confluent_kafka.TopicPartition(*part, offset) for part, offset in ends.items()]
                try:
                    about = consumer.consumer_group_metadata()
                    self._request(lambda: producer.send_offsets_to_transaction(places, about, PATIENCE_SECONDS))
                finally:
                    consumer.close()
            self._request(lambda: producer.commit_transaction(PATIENCE_SECONDS))
        except BaseException:
            with suppress(confluent_kafka.KafkaException):  # the next replay aborts the transaction anyway
                producer.abort_transaction(PATIENCE_SECONDS)
            raise

    def _produce(self, producer: Any, letter: TopicLetter) -> None:
        to = letter.header("source-id") or self._origin
        if to is None:
            raise PlanError(
                f"the dead letter {letter.partition}:{letter.offset} of {self.topic} does not say which topic it came from",
                hint="the stream reads topics by a pattern: send that message by hand",
            )
        self._request(lambda: producer.produce(to, key=letter.key, value=letter.value, headers=letter.own_headers))
        producer.poll(0)

    def _request(self, ask: Any) -> Any:
        try:
            return ask()
        except (confluent_kafka.KafkaException, BufferError) as exc:
            raise translate(exc, at=self.label) from exc


def _letter(message: Any) -> TopicLetter:
    at = datetime.fromtimestamp(max(0, message.timestamp()[1]) / 1000, timezone.utc)
    headers = tuple((str(key), value) for key, value in message.headers() or ())
    return TopicLetter(message.partition(), message.offset(), message.key(), message.value(), headers, at)
