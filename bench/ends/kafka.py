"""Kafka: a topic of two partitions with a message for every row."""

from __future__ import annotations

from collections.abc import Mapping

from bench import data
from bench.ends import names
from bench.place import Place
from bench.tables import Table

PARTITIONS = 2
_SECONDS = 60.0


class KafkaSource:
    """Rows as JSON objects, all of them there before the clock starts."""

    def prepare(self, place: Place, table: Table) -> Mapping[str, str]:
        """Filled once per invocation."""
        broker, topic = place.kafka(), f"bench_{table.name}"
        mark = f"kafka {table.name}"
        if mark not in place.filled:
            create_topic(broker, topic, partitions=PARTITIONS)
            _fill(place, broker, topic, table)
            place.filled.add(mark)
        return {names.SOURCE: broker, names.SOURCE_TOPIC: topic}


def create_topic(broker: str, topic: str, *, partitions: int) -> None:
    """Make it, and wait until it is there."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker})
    for made in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        made.result(_SECONDS)


def _fill(place: Place, broker: str, topic: str, table: Table) -> None:
    import duckdb
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker, "linger.ms": 20, "queue.buffering.max.messages": 200_000})
    failed: list[object] = []
    with duckdb.connect() as client:
        rows = client.execute(f"SELECT to_json(t) FROM read_parquet('{data.parquet(place, table)}') AS t")
        while found := rows.fetchmany(50_000):
            for number, (text,) in enumerate(found):
                producer.produce(
                    topic,
                    value=text,
                    partition=number % PARTITIONS,
                    on_delivery=lambda error, _: failed.append(error) if error else None,
                )
            producer.flush(_SECONDS)
    if failed:
        raise RuntimeError(f"{len(failed)} messages did not arrive, the first because of {failed[0]}")
