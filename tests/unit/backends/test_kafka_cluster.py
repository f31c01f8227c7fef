"""What needs a Kafka that answers, shown with the cluster inside librdkafka: no server is started."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ematix_flow.backends.kafka.dead_letters import KafkaDeadLetterTopic
from ematix_flow.backends.kafka.listener import KafkaListener
from ematix_flow.declare.connections import KafkaConnection
from ematix_flow.foundation.errors import Unreachable


class Cluster:
    """The cluster of one producer, which goes away with it."""

    def __init__(self) -> None:
        from confluent_kafka import Producer

        self._producer: Any = Producer({"test.mock.num.brokers": 1, "log_level": 0})
        broker = self._producer.list_topics(timeout=10).brokers[1]
        self.connection = KafkaConnection("events", bootstrap_servers=f"{broker.host}:{broker.port}")

    def send(self, topic: str, value: bytes, headers: dict[str, bytes], partition: int = 0) -> None:
        self._producer.produce(topic, value, headers=list(headers.items()), partition=partition)
        assert self._producer.flush(10) == 0

    def stop(self) -> None:
        self._producer = None


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    pytest.importorskip("confluent_kafka")
    started = Cluster()
    yield started
    started.stop()


def test_a_listener_whose_brokers_are_gone_reports_that_no_server_answers(cluster: Cluster) -> None:
    cluster.send("arrivals", b"a.csv", {})
    listener = KafkaListener(cluster.connection, "arrivals", "load")
    cluster.stop()
    with pytest.raises(Unreachable, match="no server answers at"):
        _listen(listener)
    listener.close()


def _listen(listener: KafkaListener) -> None:
    for _ in range(100):
        listener.receive(10, 0.2)


def test_the_newest_letters_of_a_stream_are_found_behind_those_of_others(cluster: Cluster) -> None:
    for number in range(5):
        cluster.send("letters", b"%d" % number, {"ematix-pipeline-name": b"orders"}, partition=number % 2)
    for _ in range(20):
        cluster.send("letters", b"", {"ematix-pipeline-name": b"clicks"})
    letters = KafkaDeadLetterTopic(cluster.connection, "letters", "orders", "orders")
    assert [item.value for item in letters.newest(3)] == [b"4", b"3", b"2"]
    assert len(letters.newest(100)) == 5
    assert letters.newest(0) == []
    letters.close()
