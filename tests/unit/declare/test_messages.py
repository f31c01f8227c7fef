"""Workflows that messages fire, as they are declared, and the message itself."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from ematix_flow import (
    AllOf,
    KafkaConnection,
    KinesisConnection,
    PubSubConnection,
    RabbitMQConnection,
    Source,
    SQLiteConnection,
    ematix,
)
from ematix_flow.declare import registry, workflow
from ematix_flow.declare.message import MOST_BYTES, Message
from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.pipeline import register
from ematix_flow.scheduler.broker_triggers import first_jobs_of, run_for_message
from ematix_flow.scheduler.jobs import declared_jobs

KAFKA = KafkaConnection("events", bootstrap_servers="broker:9092")


@pytest.fixture(autouse=True)
def _empty() -> Any:
    registry.clear()
    workflow.clear()
    yield
    registry.clear()
    workflow.clear()


@pytest.mark.parametrize("connection", [KAFKA, RabbitMQConnection("mq", amqp_url="amqp://mq/"), "events"])
def test_a_workflow_is_fired_by_a_topic_or_a_queue(connection: Any) -> None:
    made = ematix.workflow(name="arrivals", jobs=["load"], on_message=Source(connection, "files"))
    assert made.on_message == Source(connection, "files")


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (Source(KinesisConnection("k", stream_name="s", region="eu-west-1"), "s"), "messages of kinesis cannot fire"),
        (Source(PubSubConnection("p", project_id="x"), "s"), "messages of pubsub cannot fire"),
        (Source(SQLiteConnection("d", path="d.db"), "s"), "messages of sqlite cannot fire"),
        (7, "takes the name of a message or a Source, not 7"),
        ("", "takes the name of a message or a Source, not ''"),
    ],
)
def test_what_cannot_fire_a_workflow_is_refused_at_its_declaration(said: Any, error: str) -> None:
    with pytest.raises(DeclarationError, match=error) as caught:
        ematix.workflow(name="arrivals", jobs=["load"], on_message=said)
    assert "test_messages.py" in str(caught.value.where)


def test_messages_fire_the_first_jobs_and_the_others_follow_them() -> None:
    for name, upstreams in {"load": [], "check": ["other"], "report": ["load", "check"], "other": []}.items():
        register(name=name, schedule=None, depends_on=upstreams)(lambda: {"name": "a job"})
    flow = ematix.workflow(name="arrivals", jobs=["load", "check", "report"], on_message=Source(KAFKA, "files"))
    jobs = {job.name: job for job in declared_jobs()}
    assert first_jobs_of(flow, jobs.values()) == ["load", "check"]
    assert (jobs["load"].trigger, jobs["check"].trigger) == (None, None)
    assert jobs["report"].trigger == AllOf("load", "check")


def test_the_same_message_asks_for_the_same_run_and_another_one_for_another() -> None:
    first, again, other = (Message(b"{}", place, "files") for place in ("files-0@1/5", "files-0@1/5", "files-0@2/5"))
    ids = [run_for_message(item, "load", "arrivals").run_id for item in (first, again, other)]
    assert ids[0] == ids[1] != ids[2]
    assert run_for_message(first, "check", "arrivals").run_id != ids[0]
    assert run_for_message(first, "load", "other").run_id != ids[0]


def test_a_message_comes_back_as_it_was_and_a_long_one_without_its_value() -> None:
    at = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    whole = Message(b'{"n": 1}', "t-0@1", "t", b"\xff", (("from", b"\x00"), ("none", None)), at, 8)
    assert Message.from_dict(whole.to_dict()) == whole
    assert (whole.json(), whole.text) == ({"n": 1}, '{"n": 1}')
    long = Message.from_dict(Message(b"x" * (MOST_BYTES + 1), "t-0@2").to_dict())
    assert (long.value, long.text, long.json(), long.size) == (None, None, None, MOST_BYTES + 1)
    empty = Message.from_dict(Message(None, "t-0@3").to_dict())
    assert (empty.value, empty.size) == (None, 0)
