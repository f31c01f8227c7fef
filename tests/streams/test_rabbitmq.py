"""RabbitMQ as the source and the target of a stream, against a real broker that is also stopped and killed."""

from __future__ import annotations

import base64
import json
import secrets
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ematix_flow.backends.catalog import backend_for
from ematix_flow.backends.rabbitmq.client import RabbitMQAddress
from ematix_flow.backends.rabbitmq.client import queue_depth as depth_of
from ematix_flow.backends.rabbitmq.dead_letters import exchange_by_policy
from ematix_flow.backends.rabbitmq.receiver import RabbitMQReceiver
from ematix_flow.backends.rabbitmq.sink import RabbitMQSink
from ematix_flow.backends.rabbitmq.source import RabbitMQSource
from ematix_flow.contract.stream import BrokerJob, StreamRead
from ematix_flow.declare.connections import RabbitMQConnection
from ematix_flow.foundation.errors import ConfigError, ConnectionFailed, MissingTable, Unreachable
from tests.services import rabbitmq
from tests.services.server import free_port
from tests.services.wanted import or_skip
from tests.streams.rabbit_queues import channel, depth, new_queue, publish, taken, with_dead_letters
from tests.streams.spool_job import Job, Target
from tests.streams.spool_runs import once, run, run_until_killed, running, spark, texts, wait_for

__all__ = ["spark"]


def connection(url: str) -> RabbitMQConnection:
    return RabbitMQConnection("broker", amqp_url=url)


def job_of(url: str, queue: str, home: Path, **more: Any) -> tuple[Job, Target]:
    job = Job("rabbitmq", {"amqp_url": url}, queue, str(home / "stream"), str(home / "target"), **more)
    return job, Target(home / "target")


def numbered(number: int, first: int = 0) -> list[str]:
    return [f'{{"n": {first + step}}}' for step in range(number)]


@pytest.fixture
def own_node() -> Iterator[rabbitmq.Node]:
    """A broker that a test may stop and kill; its user sees nothing of the tests' own folders."""
    or_skip(rabbitmq.program)
    with tempfile.TemporaryDirectory(prefix="flow-rabbit-") as home:
        node = rabbitmq.Node(Path(home))
        try:
            yield node.start()
        finally:
            node.stop()


def test_everything_arrives_once_with_its_properties_and_is_acknowledged(rabbitmq_url: str, tmp_path: Path) -> None:
    queue, values = new_queue(rabbitmq_url), numbered(1500)
    publish(rabbitmq_url, queue, values, headers={"trace": "abc", "tries": 3}, timestamp=1_700_000_000)
    job, target = job_of(rabbitmq_url, queue, tmp_path, rows=1500, max_rows=700)
    run(job)
    assert [row["value"] for row in target.rows()] == values
    first = target.rows()[0]
    assert first["headers"] == {"trace": "abc", "tries": "3"}
    assert (first["topic"], first["key"], first["message_id"]) == (queue, queue, f"id {values[0]}")
    assert first["timestamp"].startswith("2023-11-14")
    assert target.largest() <= 700
    wait_for(lambda: depth(rabbitmq_url, queue) == 0, seconds=10)


@pytest.mark.full
def test_killed_at_every_step_nothing_is_lost_and_nothing_doubled(rabbitmq_url: str, tmp_path: Path) -> None:
    queue, values = new_queue(rabbitmq_url), numbered(2000)
    publish(rabbitmq_url, queue, values)
    job, target = job_of(rabbitmq_url, queue, tmp_path, max_rows=200, options={"window": 1000})
    for point in ("after_plan:1", "before_write:2", "after_write:3", "after_commit:4"):
        run_until_killed(job, point)
    run(replace(job, rows=2000))
    assert texts(target) == once(values)
    assert target.is_steady
    wait_for(lambda: depth(rabbitmq_url, queue) == 0, seconds=10)


@pytest.mark.full("starts brokers of its own")
@pytest.mark.parametrize("way", ["pause", "kill"])
def test_a_broker_that_is_started_again_in_mid_stream_loses_and_doubles_nothing(
    own_node: rabbitmq.Node, tmp_path: Path, way: str
) -> None:
    queue, values = new_queue(own_node.url), numbered(3000)
    publish(own_node.url, queue, values)
    job, target = job_of(own_node.url, queue, tmp_path, rows=5000, max_rows=200, options={"window": 1000}, linger=3.0)
    with running(job) as ended:
        wait_for(lambda: len(target.rows()) >= 400)
        getattr(own_node, way)()
        own_node.start()
        more = numbered(2000, first=3000)
        publish(own_node.url, queue, more)
        ended()
    assert texts(target) == once(values + more)
    wait_for(lambda: depth(own_node.url, queue) == 0, seconds=10)


@pytest.mark.full
def test_the_server_that_is_down_is_reported_in_a_sentence() -> None:
    source = RabbitMQSource(connection(f"amqp://ana:hunter22@127.0.0.1:{free_port()}/%2F"))
    with pytest.raises(Unreachable, match=r"no server answers at RabbitMQ at 127\.0\.0\.1:\d+") as told:
        source.check(StreamRead("s", "orders", "/c"))
    assert "hunter22" not in str(told.value)


def test_a_wrong_password_is_reported_in_a_sentence(rabbitmq_url: str) -> None:
    wrong = rabbitmq_url.replace(rabbitmq.PASSWORD, "something-else")
    for refused in (RabbitMQSource(connection(wrong)), RabbitMQSink(connection(wrong))):
        with pytest.raises(ConnectionFailed, match="refuses the login") as told:
            refused.check(StreamRead("s", "orders", "/c") if isinstance(refused, RabbitMQSource) else "orders")
        assert "something-else" not in str(told.value)
    with pytest.raises(ConnectionFailed, match="virtual host"):
        RabbitMQSink(connection(rabbitmq_url.replace("%2F", "nowhere"))).check("orders")


def test_a_missing_queue_is_reported_in_a_sentence(rabbitmq_url: str) -> None:
    with pytest.raises(MissingTable, match="queue 'nowhere' is not there"):
        RabbitMQSource(connection(rabbitmq_url)).check(StreamRead("s", "nowhere", "/c"))
    with pytest.raises(MissingTable, match="queue 'nowhere' is not there"):
        RabbitMQSink(connection(rabbitmq_url)).check("nowhere")


@pytest.mark.full
def test_lag_is_the_depth_of_the_queue(rabbitmq_url: str, tmp_path: Path) -> None:
    queue = new_queue(rabbitmq_url)
    publish(rabbitmq_url, queue, numbered(12))
    source = RabbitMQSource(connection(rabbitmq_url))
    assert [(lag.part, lag.rows) for lag in source.lag(StreamRead("s", queue, str(tmp_path)), {})] == [(queue, 12)]


def test_the_manifest_says_what_is_promised() -> None:
    found = backend_for(connection("amqp://localhost"))
    assert (found.name, found.stream_delivery) == ("rabbitmq", "at-least-once")
    assert found.stream_source is RabbitMQSource
    assert found.broker_sink is RabbitMQSink


@pytest.mark.full
def test_acknowledgements_reach_just_the_messages_that_are_meant(rabbitmq_url: str) -> None:
    queue, values = new_queue(rabbitmq_url), numbered(10)
    publish(rabbitmq_url, queue, values)
    receiver = RabbitMQReceiver(RabbitMQAddress.of(connection(rabbitmq_url), "test"), queue)
    receiver.connect(0)
    found = _all_of(receiver, 10)
    receiver.ack([found[index].tag for index in (0, 1, 2, 5, 7)])
    receiver.nack([found[9].tag], requeue=False)
    receiver.close()
    left = [body.decode() for _, body in taken(rabbitmq_url, queue, at_least=4)]
    assert left == [values[index] for index in (3, 4, 6, 8)]


def _all_of(receiver: RabbitMQReceiver, number: int) -> list[Any]:
    found: list[Any] = []
    wait_for(lambda: len(found) >= number or bool(found.extend(receiver.receive(100, 0.2))), seconds=10)
    return found


@pytest.mark.full
def test_a_queue_that_keeps_no_rejected_messages_is_refused(rabbitmq_url: str, tmp_path: Path) -> None:
    source, name = RabbitMQSource(connection(rabbitmq_url)), secrets.token_hex(4)

    def check(queue: str) -> None:
        source.check_dead_lettering(StreamRead("s", queue, str(tmp_path)))

    with pytest.raises(ConfigError, match="has no dead-letter exchange that can be seen") as told:
        check(new_queue(rabbitmq_url))
    assert 'dlq_store="table"' in str(told.value.hint)
    check(with_dead_letters(rabbitmq_url)[0])
    odd = new_queue(
        rabbitmq_url, **{"x-queue-type": "quorum", "x-max-length": 7, "x-dead-letter-exchange": f"it's {name}"}
    )
    with pytest.raises(ConfigError, match=f"exchange .*{name}.* is not there"):
        check(odd)
    with channel(rabbitmq_url) as keeper:
        keeper.exchange_declare(f"it's {name}", "fanout")
        keeper.queue_declare(f"brief-{name}", auto_delete=True, arguments={"x-dead-letter-exchange": f"it's {name}"})
    check(odd)
    check(f"brief-{name}")
    with pytest.raises(MissingTable, match="'nowhere' is not there"):
        check("nowhere")
    with pytest.raises(MissingTable):
        depth_of(RabbitMQAddress.of(connection(rabbitmq_url), "test"), "nowhere")  # asking has not made it


@pytest.mark.full("starts a broker of its own")
def test_a_policy_is_seen_by_the_management_api() -> None:
    or_skip(rabbitmq.program)
    with tempfile.TemporaryDirectory(prefix="flow-rabbit-") as home:
        node = rabbitmq.Node(Path(home), management=free_port())
        try:
            node.start()
            queue, address = new_queue(node.url), RabbitMQAddress.of(connection(node.url), "test")
            assert exchange_by_policy(address, queue, node.management) is None
            definition = {"pattern": queue, "definition": {"dead-letter-exchange": "dlx"}, "apply-to": "queues"}
            _put(f"http://127.0.0.1:{node.management}/api/policies/%2F/dead", definition)
            wait_for(lambda: exchange_by_policy(address, queue, node.management) == "dlx", seconds=20)
            assert exchange_by_policy(address, queue, free_port()) is None
        finally:
            node.stop()


def _put(url: str, body: dict[str, Any]) -> None:
    login = base64.b64encode(f"{rabbitmq.USER}:{rabbitmq.PASSWORD}".encode()).decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="PUT")
    urllib.request.urlopen(request, timeout=10).close()


@pytest.mark.full
def test_a_queue_that_is_taken_away_is_noticed(rabbitmq_url: str) -> None:
    queue = new_queue(rabbitmq_url)
    receiver = RabbitMQReceiver(RabbitMQAddress.of(connection(rabbitmq_url), "test"), queue)
    receiver.connect(10)
    with channel(rabbitmq_url) as keeper:
        keeper.queue_delete(queue)
    with pytest.raises(Unreachable, match="was taken away"):
        _all_of(receiver, 1)
    receiver.close()
    with pytest.raises(MissingTable, match="is not there"):
        RabbitMQReceiver(RabbitMQAddress.of(connection(rabbitmq_url), "test"), queue).connect(10)


def frame(spark: Any, rows: int, *, parts: int = 2) -> Any:
    return spark.range(0, rows, 1, parts).selectExpr(
        "CAST(concat('k', id % 7) AS BINARY) AS key",
        "CAST(CAST(id AS STRING) AS BINARY) AS value",
        "array(named_struct('key', 'n', 'value', CAST(CAST(id AS STRING) AS BINARY))) AS headers",
    )


def job(queue: str, batch: int = 0) -> BrokerJob:
    return BrokerJob("copy", "copy@1::out", batch, queue)


def test_sent_rows_are_confirmed_persistent_messages_with_ids(rabbitmq_url: str, spark: Any) -> None:
    queue, sink = new_queue(rabbitmq_url), RabbitMQSink(connection(rabbitmq_url))
    assert sink.send(job(queue), frame(spark, 3000)) == 3000
    assert depth(rabbitmq_url, queue) == 3000
    found = taken(rabbitmq_url, queue, seconds=60, at_least=3000)
    assert Counter(body for _, body in found) == Counter(str(n).encode() for n in range(3000))
    told = next(properties for properties, body in found if body == b"9")
    assert (told.delivery_mode, told.headers) == (2, {"n": "9", "message_key": "k2"})
    assert told.message_id.startswith("copy@1::out/0/")
    assert len({properties.message_id for properties, _ in found}) == 3000


@pytest.mark.full
def test_a_batch_that_is_sent_again_has_the_same_ids(rabbitmq_url: str, spark: Any) -> None:
    queue, sink = new_queue(rabbitmq_url), RabbitMQSink(connection(rabbitmq_url))
    same = frame(spark, 40).union(frame(spark, 40))  # equal rows are two messages
    for _ in range(2):
        sink.send(job(queue), same)
    ids = Counter(properties.message_id for properties, _ in taken(rabbitmq_url, queue, at_least=160))
    assert (len(ids), set(ids.values())) == (80, {2})
    sink.send(job(queue, batch=1), same)
    assert not ids.keys() & {properties.message_id for properties, _ in taken(rabbitmq_url, queue, at_least=80)}


@pytest.mark.full
def test_nothing_is_sent_for_an_empty_batch(rabbitmq_url: str, spark: Any) -> None:
    assert RabbitMQSink(connection(rabbitmq_url)).send(job("nowhere"), frame(spark, 0)) == 0


@pytest.mark.full
def test_a_queue_that_vanished_ends_the_batch(rabbitmq_url: str, spark: Any) -> None:
    from ematix_flow.engine.session.spark_errors import translate

    with pytest.raises(Exception, match="queue 'nowhere' is not there") as told:
        RabbitMQSink(connection(rabbitmq_url)).send(job("nowhere"), frame(spark, 10))
    assert isinstance(translate(told.value), MissingTable)


@pytest.mark.full
def test_what_a_stream_sends_a_stream_reads_once_although_it_was_sent_twice(
    rabbitmq_url: str, spark: Any, tmp_path: Path
) -> None:
    queue = new_queue(rabbitmq_url)
    for _ in range(2):
        RabbitMQSink(connection(rabbitmq_url)).send(job(queue), frame(spark, 300))
    told, target = job_of(rabbitmq_url, queue, tmp_path, once=True, options={"drain": True})
    run(told)
    assert texts(target) == once([str(n) for n in range(300)])
    assert {row["value"]: row["key"] for row in target.rows()}["9"] == "k2"
