"""Pub/Sub as the source and the target of a stream, against Google's own stand-in."""

from __future__ import annotations

import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ematix_flow._core import PubSubBackend
from ematix_flow.backends.catalog import backend_for
from ematix_flow.backends.pubsub.client import PubSubAddress
from ematix_flow.backends.pubsub.receiver import PubSubReceiver
from ematix_flow.backends.pubsub.sink import PubSubSink, publish
from ematix_flow.backends.pubsub.source import PubSubSource
from ematix_flow.contract.stream import BrokerJob, StreamRead
from ematix_flow.declare.connections import PubSubConnection
from ematix_flow.foundation.errors import BadValue, ConfigError, DeclarationError, MissingTable, Unreachable
from tests.services.built import PSTEST, product
from tests.services.pubsub import PROJECT
from tests.services.server import Account, end, free_port, wait_until_ready
from tests.services.server import launch as launch_server
from tests.services.wanted import or_skip
from tests.streams.pubsub_topics import Project
from tests.streams.spool_job import Job, Target
from tests.streams.spool_runs import once, run, run_until_killed, running, spark, texts, wait_for

__all__ = ["spark"]
_A_DEADLINE = 12.0
"""After so many seconds the service gives to others what a process that was killed had."""


@pytest.fixture
def project(pubsub_endpoint: str) -> Project:
    return Project(pubsub_endpoint)


def connection(project: Project) -> PubSubConnection:
    return PubSubConnection("broker", project_id=PROJECT, endpoint=project.endpoint, anonymous_auth=True)


def job_of(project: Project, subscription: str, home: Path, **more: Any) -> tuple[Job, Target]:
    fields = {"project_id": PROJECT, "endpoint": project.endpoint, "anonymous_auth": True}
    job = Job("pubsub", fields, subscription, str(home / "stream"), str(home / "target"), **more)
    return job, Target(home / "target")


def numbered(number: int, first: int = 0) -> list[str]:
    return [f'{{"n": {first + step}}}' for step in range(number)]


def test_everything_arrives_once_with_its_attributes_and_is_acknowledged(project: Project, tmp_path: Path) -> None:
    topic, values = project.new_topic(), numbered(1000)
    subscription = project.new_subscription(topic, enable_message_ordering=True)
    project.publish(topic, values[:3], key="k", trace="abc")  # of one key, the next comes when this one is acknowledged
    project.publish(topic, values[3:])
    job, target = job_of(project, subscription, tmp_path, rows=1000, max_rows=500, linger=1.0)
    run(job)
    assert texts(target) == once(values)
    keyed = [row for row in target.rows() if row.get("key")]
    assert [row["value"] for row in keyed] == values[:3]
    first = keyed[0]
    assert (first["topic"], first["key"], first["headers"]) == (subscription, "k", {"trace": "abc"})
    assert first["message_id"]
    assert first["timestamp"].startswith("20")
    assert target.largest() <= 500
    assert project.is_empty(subscription)


@pytest.mark.full("the spool alone shows the same")
def test_killed_at_every_step_nothing_is_lost_and_nothing_doubled(project: Project, tmp_path: Path) -> None:
    topic, values = project.new_topic(), numbered(3000)
    subscription = project.new_subscription(topic)
    project.publish(topic, values)
    job, target = job_of(project, subscription, tmp_path, max_rows=500, options={"window": 1500})
    for point in ("after_plan:1", "before_write:2", "after_write:3", "after_commit:4"):
        run_until_killed(job, point)
    run(replace(job, rows=3000, linger=15.0))
    assert texts(target) == once(values)
    assert target.is_steady
    assert project.is_empty(subscription, seconds=_A_DEADLINE)


@pytest.mark.full("waits for deadlines")
def test_a_batch_that_takes_longer_than_the_deadline_is_not_delivered_to_others(project: Project) -> None:
    topic = project.new_topic()
    subscription = project.new_subscription(topic)
    project.publish(topic, numbered(20))
    receiver = PubSubReceiver(PubSubAddress.of(connection(project)), subscription)
    receiver.connect(100)
    found: list[Any] = []
    wait_for(lambda: len(found) >= 20 or bool(found.extend(receiver.receive(100, 0.5))), seconds=20)
    assert receiver.renew_seconds is not None
    for _ in range(4):  # longer than the ten seconds of the subscription
        receiver.extend([message.tag for message in found])
        time.sleep(receiver.renew_seconds)
    assert receiver.receive(100, 0.5) == []
    receiver.ack([message.tag for message in found])
    receiver.close()
    assert project.is_empty(subscription)


def test_a_window_that_is_full_lets_nothing_more_in(project: Project) -> None:
    topic = project.new_topic()
    subscription = project.new_subscription(topic)
    project.publish(topic, numbered(50))
    receiver = PubSubReceiver(PubSubAddress.of(connection(project)), subscription)
    receiver.connect(20)
    found: list[Any] = []
    wait_for(lambda: len(found) >= 20 or bool(found.extend(receiver.receive(100, 0.5))), seconds=20)
    time.sleep(1.5)
    assert receiver.receive(100, 0.5) == []
    receiver.ack([message.tag for message in found])
    wait_for(lambda: len(found) >= 40 or bool(found.extend(receiver.receive(100, 0.5))), seconds=20)
    receiver.close()


@pytest.fixture
def own_service(tmp_path: Path) -> Iterator[Any]:
    """A Pub/Sub that a test may end and start again; it forgets everything."""
    program, port = or_skip(lambda: product(PSTEST)), free_port()
    home = tmp_path / "service"
    home.mkdir()
    running: list[Any] = []

    def start() -> Project:
        process = launch_server(
            [str(program), "-port", str(port)],
            account=Account(None, None), folder=home, death_signal=signal.SIGTERM,
        )  # fmt: skip
        running.append(process)
        project = Project(f"127.0.0.1:{port}")
        wait_until_ready(process, connect=lambda: project.new_topic("hello"), folder=home)
        return project

    def stop() -> None:
        end(running.pop(), by=signal.SIGKILL)

    yield start, stop
    for process in running:
        end(process, by=signal.SIGKILL)
    shutil.rmtree(home, ignore_errors=True)


@pytest.mark.full("waits for growing pauses; the spool alone shows the same")
def test_a_service_that_is_started_again_in_mid_stream_does_not_end_the_query(own_service: Any, tmp_path: Path) -> None:
    start, stop = own_service
    project = start()
    values, more = numbered(1000), numbered(500, first=1000)
    project.new_topic("orders")
    project.new_subscription("orders", "reader")
    project.publish("orders", values)
    job, target = job_of(project, "reader", tmp_path, rows=1500, max_rows=200)
    with running(job) as ended:
        wait_for(lambda: len(target.rows()) >= 1000)
        stop()
        time.sleep(2.0)
        project = start()
        project.new_topic("orders")  # it has forgotten everything; ids begin anew, so these are other messages
        project.new_subscription("orders", "reader")
        project.publish("orders", more)
        ended()
    assert texts(target) == once(values + more)


def test_mistakes_are_reported_in_sentences(project: Project) -> None:
    read = StreamRead("s", "nowhere", "/c")
    with pytest.raises(MissingTable, match="subscription 'nowhere' is not there at Pub/Sub at 127"):
        PubSubSource(connection(project)).check(read)
    with pytest.raises(MissingTable, match="topic 'nowhere' is not there"):
        PubSubSink(connection(project)).check("nowhere")
    nobody = PubSubConnection("b", project_id="p", endpoint=f"127.0.0.1:{free_port()}", anonymous_auth=True)
    with pytest.raises(Unreachable, match="no server answers at Pub/Sub at 127"):
        PubSubSource(nobody).check(read)
    with pytest.raises(ConfigError, match="no endpoint"):
        PubSubSource(PubSubConnection("b", project_id="p", anonymous_auth=True)).check(read)


def test_the_service_does_not_tell_how_much_waits(project: Project, tmp_path: Path) -> None:
    subscription = project.new_subscription(project.new_topic())
    found = PubSubSource(connection(project)).lag(StreamRead("s", subscription, str(tmp_path)), {})
    assert [(lag.part, lag.rows) for lag in found] == [(subscription, None)]


def test_the_manifest_says_what_is_promised() -> None:
    found = backend_for(PubSubConnection("b", project_id="p"))
    assert (found.name, found.stream_delivery) == ("pubsub", "at-least-once")
    assert (found.stream_source, found.broker_sink) == (PubSubSource, PubSubSink)


def frame(spark: Any, rows: int) -> Any:
    return spark.range(0, rows, 1, 2).selectExpr(
        "CAST(concat('k', id % 7) AS BINARY) AS key",
        "CAST(CAST(id AS STRING) AS BINARY) AS value",
        "array(named_struct('key', 'n', 'value', CAST(CAST(id AS STRING) AS BINARY))) AS headers",
    )


def test_sent_rows_have_ordering_keys_and_ids_that_stay_the_same(project: Project, spark: Any) -> None:
    topic = project.new_topic()
    subscription = project.new_subscription(topic, enable_message_ordering=True)
    sink, job = PubSubSink(connection(project)), BrokerJob("copy", "copy@1::out", 0, topic)
    for _ in range(2):
        assert sink.send(job, frame(spark, 1000)) == 1000
    found = project.taken(subscription, at_least=2000, seconds=60)
    assert Counter(message.data for message in found) == Counter({str(n).encode(): 2 for n in range(1000)})
    nine = [message for message in found if message.data == b"9"]
    assert {message.ordering_key for message in nine} == {"k2"}
    assert {message.attributes["n"] for message in nine} == {"9"}
    assert len({message.attributes["ematix-message-id"] for message in found}) == 1000
    assert sink.send(BrokerJob("copy", "copy@1::out", 1, "nowhere"), frame(spark, 0)) == 0


def test_a_topic_that_vanished_ends_the_batch(project: Project, spark: Any) -> None:
    from ematix_flow.engine.session.spark_errors import translate

    with pytest.raises(Exception, match="topic 'nowhere' is not there") as told:
        PubSubSink(connection(project)).send(BrokerJob("copy", "w", 0, "nowhere"), frame(spark, 10))
    assert isinstance(translate(told.value), MissingTable)


def opened(project: Project, **more: int) -> PubSubBackend:
    return PubSubBackend.open(
        PROJECT, endpoint=project.endpoint, anonymous_auth=True, **{"idle_timeout_ms": 700, **more}
    )


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(numbers), "text": [f"žluť {n}" for n in numbers]})


def test_a_notebook_writes_reads_and_acknowledges(project: Project) -> None:
    topic = project.new_topic()
    subscription = project.new_subscription(topic)
    with opened(project, batch_size=4) as backend:
        assert backend.ping() is True
        assert backend.write_arrow_stream(topic, [batch(1, 2, 3), batch(4, 5)]) == 5
        read = backend.read_arrow_stream(subscription)
        rows = pa.Table.from_batches(read).to_pylist()
        assert sorted(rows, key=lambda row: row["n"]) == pa.Table.from_batches([batch(1, 2, 3, 4, 5)]).to_pylist()
        assert backend.pending_handler_count() == 5
        backend.commit_offsets()
        assert backend.pending_handler_count() == 0
        with pytest.raises(MissingTable, match="'nowhere' is not there"):
            backend.read_arrow_stream("nowhere")
        with pytest.raises(MissingTable, match="'nowhere' is not there"):
            backend.write_arrow_stream("nowhere", [batch(1)])
    assert project.is_empty(subscription)


@pytest.mark.full("waits for deadlines")
def test_a_notebook_keeps_its_messages_while_it_is_idle(project: Project) -> None:
    topic = project.new_topic()
    subscription = project.new_subscription(topic)
    with opened(project) as backend:
        backend.write_arrow_stream(topic, [batch(1, 2)])
        assert sum(len(one) for one in backend.read_arrow_stream(subscription)) == 2
        time.sleep(13)
        assert backend.read_arrow_stream(subscription) == []
        backend.commit_offsets()
    assert project.is_empty(subscription)


def test_what_a_notebook_could_not_decode_is_never_acknowledged(project: Project) -> None:
    topic = project.new_topic()
    subscription = project.new_subscription(topic)
    with opened(project) as backend:
        publish(backend._address, topic, [(b"not json", "", {})])
        with pytest.raises(BadValue, match="is not JSON"):
            backend.read_arrow_stream(subscription)
        backend.commit_offsets()
        assert backend.pending_handler_count() == 1
        assert backend.nack_pending() == 1
    assert not project.is_empty(subscription)


def test_messages_that_a_notebook_gives_back_five_times_are_dead_lettered(project: Project) -> None:
    topic = project.new_topic()
    subscription, dead = project.with_dead_letters(topic)
    with opened(project) as backend:
        backend.write_arrow_stream(topic, [batch(1)])
        for _ in range(5):
            assert len(backend.read_arrow_stream(subscription)) == 1
            assert backend.nack_pending() == 1
        assert backend.read_arrow_stream(subscription) == []
    assert [message.data for message in project.taken(dead)] == ['{"n":1,"text":"žluť 1"}'.encode()]


def test_a_notebook_tells_mistakes_in_sentences(project: Project) -> None:
    topic = project.new_topic()
    subscription, other = project.new_subscription(topic), project.new_subscription(topic)
    project.publish(topic, ["not json"])
    with opened(project) as backend:
        with pytest.raises(BadValue, match="is not JSON"):
            backend.read_arrow_stream(subscription)
        with pytest.raises(DeclarationError, match="wait for an answer"):
            backend.read_arrow_stream(other)
        assert backend.nack_pending() == 1
    with pytest.raises(Unreachable, match="no server answers"):
        PubSubBackend.open("p", endpoint=f"127.0.0.1:{free_port()}", anonymous_auth=True).ping()
    with pytest.raises(DeclarationError, match="idle_timeout_ms"):
        opened(project, idle_timeout_ms=-1)


def test_a_subscription_that_keeps_no_rejected_messages_is_refused(project: Project, tmp_path: Path) -> None:
    topic = project.new_topic()
    plain, source = project.new_subscription(topic), PubSubSource(connection(project))
    with pytest.raises(ConfigError, match=f"subscription '{plain}' has no dead-letter topic") as told:
        source.check_dead_lettering(StreamRead("s", plain, str(tmp_path)))
    assert "--dead-letter-topic" in str(told.value.hint)
    source.check_dead_lettering(StreamRead("s", project.with_dead_letters(topic)[0], str(tmp_path)))
    project.publish(topic, numbered(1))
    receiver, found = PubSubReceiver(PubSubAddress.of(connection(project)), plain), list[Any]()
    receiver.connect(10)
    wait_for(lambda: bool(found) or bool(found.extend(receiver.receive(10, 0.5))), seconds=20)
    with pytest.raises(ConfigError, match="would be lost"):  # its policy went away while the stream ran
        receiver.nack([found[0].tag], requeue=False)
    receiver.nack([found[0].tag], requeue=True)
    receiver.close()
    assert len(project.taken(plain)) == 1


@pytest.mark.full("the service wants to hear it five times")
def test_a_refused_message_goes_to_the_dead_letter_topic(project: Project, tmp_path: Path) -> None:
    topic, values = project.new_topic(), numbered(20)
    subscription, dead = project.with_dead_letters(topic)
    project.publish(topic, values)
    job, target = job_of(project, subscription, tmp_path, rows=20, linger=20.0, refuses=(3, 5))
    run(job)
    found = project.taken(dead, at_least=2)
    refused = [row["value"] for row in target.rows() if row["offset"] in (3, 5)]
    assert sorted(message.data.decode() for message in found) == sorted(refused)
    assert texts(target) == once(values)
    assert project.is_empty(subscription, seconds=_A_DEADLINE)
