"""Workflows that messages of a real broker fire, by `flow scheduler` as a process of its own."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import KafkaConnection, Source
from ematix_flow.declare.workflow import Workflow
from ematix_flow.run_log.sqlite import SqliteRunLog
from ematix_flow.scheduler.broker_triggers import MessageTrigger
from tests.scheduler.projects import Project
from tests.services.kafka import Kafka
from tests.streams.kafka_topics import group_offsets, new_topic, send
from tests.streams.rabbit_queues import channel, depth, new_queue, publish

_WORKFLOW = """
from ematix_flow import KafkaConnection, RabbitMQConnection, Source

@register(name="load", schedule=None, retry={{"max_attempts": 3, "base_secs": 0}})
def load(message):
    with (HERE / "seen.txt").open("a") as out:
        out.write(message.json()["file"] + "\\n")
    if message.json()["file"] == "bad" and not (HERE / "healed").exists():
        (HERE / "healed").touch()
        raise ConnectionError("the disk was away")
    return {{"file": message.json()["file"], "from": message.source}}

@register(name="report", schedule=None, depends_on=["load"])
def report():
    return work("report", 0)

ematix.workflow(name="arrivals", jobs=["load", "report"], on_message=Source({connection}, {query!r}))
"""


@dataclass
class Arrivals:
    """A project whose workflow listens, and the broker that it listens to."""

    project: Project
    send: Callable[..., None]
    left: Callable[[], Any]
    """What the broker still has for the workflow."""
    queue: str = ""

    def seen(self) -> list[str]:
        """The messages that the job was called with, in order."""
        file = self.project.folder / "seen.txt"
        return file.read_text().split() if file.exists() else []

    def stop(self, scheduler: Any) -> None:
        """End a scheduler as a service manager does."""
        scheduler.send_signal(signal.SIGTERM)
        assert scheduler.wait(30) == 0, self.project.output_tail()


def text_of(name: str) -> str:
    return json.dumps({"file": name})


@pytest.fixture
def over_kafka(kafka: Kafka, tmp_path: Path) -> Iterator[Arrivals]:
    topic = new_topic(kafka)
    connection = f"KafkaConnection('events', bootstrap_servers={kafka.open!r}, group_id={topic!r})"
    project = _project(tmp_path, connection, topic)

    def arrive(*names: str) -> None:
        send(kafka, topic, [{"value": text_of(name)} for name in names])

    yield Arrivals(project, arrive, lambda: group_offsets(kafka, topic))
    project.close()


@pytest.fixture
def over_rabbitmq(rabbitmq_url: str, tmp_path: Path) -> Iterator[Arrivals]:
    queue = new_queue(rabbitmq_url)
    project = _project(tmp_path, f"RabbitMQConnection('events', amqp_url={rabbitmq_url!r})", queue)

    def arrive(*names: str) -> None:
        publish(rabbitmq_url, queue, [text_of(name) for name in names])

    yield Arrivals(project, arrive, lambda: depth(rabbitmq_url, queue), queue)
    project.close()


def _project(folder: Path, connection: str, query: str) -> Project:
    project = Project(folder, [])
    file = folder / "pipelines.py"
    file.write_text(file.read_text() + _WORKFLOW.format(connection=connection, query=query))
    return project


def test_each_message_of_a_topic_fires_the_workflow_once_with_its_payload(over_kafka: Arrivals, kafka: Kafka) -> None:
    project = over_kafka.project
    over_kafka.send("a", "b")
    daemon = project.scheduler("--executor", "inprocess://")
    project.wait_until(lambda: len(over_kafka.seen()) == 2, what="both messages", seconds=60)
    over_kafka.send("c")
    project.wait_until(lambda: len(over_kafka.seen()) == 3, what="the third message", seconds=60)
    project.wait_until(lambda: project.ended("report") >= 1, what="the job that follows", seconds=60)
    over_kafka.stop(daemon)
    assert over_kafka.seen() == ["a", "b", "c"]
    ((topic, end),) = over_kafka.left().items()
    assert end == 3
    runs = project.rows("SELECT status, json_extract(extras_json, '$.slot') FROM run_records WHERE pipeline = 'load'")
    assert [status for status, _ in runs] == ["succeeded"] * 3
    assert all(slot.startswith(f"message:{topic}@") for _, slot in runs)


def test_a_message_that_is_delivered_again_fires_nothing(over_kafka: Arrivals, kafka: Kafka) -> None:
    import confluent_kafka as client

    project = over_kafka.project
    over_kafka.send("a", "b")
    first = project.scheduler("--executor", "inprocess://")
    project.wait_until(lambda: len(over_kafka.seen()) == 2, what="both messages", seconds=60)
    over_kafka.stop(first)
    ((part, _),) = over_kafka.left().items()
    topic = part.rpartition("-")[0]
    consumer = client.Consumer({"bootstrap.servers": kafka.open, "group.id": topic})
    consumer.commit(offsets=[client.TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()
    over_kafka.send("c")
    second = project.scheduler("--executor", "inprocess://")
    project.wait_until(lambda: over_kafka.left() == {part: 3}, what="all messages confirmed", seconds=60)
    project.wait_until(lambda: len(over_kafka.seen()) == 3, what="the third message", seconds=60)
    over_kafka.stop(second)
    assert over_kafka.seen() == ["a", "b", "c"]


def test_a_queue_fires_by_message_id_and_a_failed_message_is_tried_again_before_the_next(
    over_rabbitmq: Arrivals,
) -> None:
    project = over_rabbitmq.project
    over_rabbitmq.send("bad", "b", "b")
    daemon = project.scheduler("--executor", "inprocess://")
    project.wait_until(lambda: len(over_rabbitmq.seen()) >= 3, what="the messages", seconds=60)
    project.wait_until(lambda: over_rabbitmq.left() == 0, what="an empty queue", seconds=60)
    failed = project.rows("SELECT run_id FROM run_records WHERE status = 'failed'")[0][0]
    project.flow("runs", "restart", failed)
    project.wait_until(lambda: len(over_rabbitmq.seen()) >= 4, what="the message that a person asked for", seconds=60)
    project.wait_until(
        lambda: (
            project.rows("SELECT count(*) FROM run_records WHERE pipeline = 'load' AND status = 'succeeded'") == [(3,)]
        ),
        what="its end",
    )
    over_rabbitmq.stop(daemon)
    assert over_rabbitmq.seen() == ["bad", "bad", "b", "bad"]
    found = project.rows("SELECT status, attempt FROM run_records WHERE pipeline = 'load' ORDER BY started_at")
    assert found == [("failed", 1), ("succeeded", 2), ("succeeded", 1), ("succeeded", 1)]


def test_only_the_leader_listens_and_the_next_one_goes_on(over_rabbitmq: Arrivals, rabbitmq_url: str) -> None:
    project = over_rabbitmq.project

    def events_of(event: str) -> int:
        return sum(item["event"] == event for item in project.events())

    first = project.scheduler()
    project.wait_until(lambda: events_of("leading") == 1, what="leading", seconds=60)
    over_rabbitmq.send("a")
    project.wait_until(lambda: over_rabbitmq.seen() == ["a"], what="the first message", seconds=60)
    second = project.scheduler()
    project.wait_until(lambda: events_of("standby") == 1, what="standby", seconds=60)
    with channel(rabbitmq_url) as looking:
        assert looking.queue_declare(over_rabbitmq.queue, passive=True).method.consumer_count == 1
    over_rabbitmq.stop(first)
    project.wait_until(lambda: events_of("leading") == 2, what="the next leader", seconds=60)
    over_rabbitmq.send("b")
    project.wait_until(lambda: over_rabbitmq.seen() == ["a", "b"], what="the second message", seconds=60)
    over_rabbitmq.stop(second)


def test_a_leader_whose_lease_is_over_confirms_nothing(kafka: Kafka, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    send(kafka, topic, [{"value": text_of("a")}])
    source = Source(KafkaConnection("events", bootstrap_servers=kafka.open, group_id=topic), topic)
    flow, log = Workflow("arrivals", ("load",), on_message=source), SqliteRunLog(str(tmp_path / "runs.db"))

    def listening(leader: str) -> MessageTrigger:
        ear = MessageTrigger(flow, ["load"], log, leader, lambda *_: None, threading.Event())
        ear.start()
        return ear

    old = log.claim("_scheduler", "one", 60).token
    assert old is not None
    log.release(old)
    new = log.claim("_scheduler", "two", 60).token
    assert new is not None
    late = listening(old)
    late.join(60)  # it ends by itself, at the first message that it may not ask for
    assert (log.pending_actions(), group_offsets(kafka, topic)) == ([], {})
    leading = listening(new)
    assert leading.news.wait(60)
    leading.stop()
    leading.join(60)
    assert [record.extras["message"]["source"] for record in log.pending_actions()] == [topic]
    assert group_offsets(kafka, topic) == {f"{topic}-0": 1}
    log.close()


def test_a_source_that_cannot_be_listened_to_is_refused_before_anything_is_scheduled(tmp_path: Path) -> None:
    project = _project(tmp_path, "'stage'", "events")
    (tmp_path / ".ematix-flow.toml").write_text('[connections.stage]\nkind = "sqlite"\npath = "stage.db"\n')
    done = project.flow("scheduler", "--max-iterations", "1", check=False)
    assert done.returncode != 0
    assert "workflow arrivals: SQLite cannot fire a workflow by its messages" in done.stderr, done.stderr
    assert "pipelines.py" in done.stderr
