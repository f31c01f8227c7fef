"""Queues through the whole engine: into tables and other queues, and dead-lettered by their broker."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.streaming import run_pipeline
from tests.services.pubsub import PROJECT
from tests.streams.pubsub_topics import Project
from tests.streams.rabbit_queues import depth, new_queue, publish, taken, with_dead_letters
from tests.streams.spool_runs import ROOT, SECONDS, spark, wait_for

__all__ = ["spark"]


@pytest.fixture(autouse=True)
def _homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any) -> None:
    monkeypatch.setenv("EMATIX_FLOW_CHECKPOINTS", str(tmp_path / "checkpoints"))


def messages(numbers: Iterable[int]) -> list[str]:
    return [json.dumps({"n": number, "name": f"name {number}"}) for number in numbers]


def from_rabbit(url: str, queue: str, rest: str) -> str:
    return f"""
name = "numbers"
source_query = "{queue}"
max_rows_per_batch = 150
idle_pause_ms = 50
{rest}

[source]
kind = "rabbitmq"
amqp_url = "{url}"
"""


def from_pubsub(endpoint: str, subscription: str, rest: str) -> str:
    return f"""
name = "numbers"
source_query = "{subscription}"
max_rows_per_batch = 150
idle_pause_ms = 50
{rest}

[source]
kind = "pubsub"
project_id = "{PROJECT}"
endpoint = "{endpoint}"
anonymous_auth = true
"""


def into(kind: str, **fields: str) -> str:
    told = "\n".join(f'{name} = "{value}"' for name, value in fields.items())
    table = '[target.table]\nschema = "main"\nname = "numbers"' if kind == "sqlite" else ""
    return f'[target]\nkind = "{kind}"\n{told}\n{table}'


@contextmanager
def consuming(toml: str, home: Path, fault: str = "") -> Iterator[subprocess.Popen[str]]:
    """`flow consume` in a process of its own; whatever it left behind ends with the block."""
    (home / "pipeline.toml").write_text(toml)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "EMATIX_FLOW_LOGS_DIR": str(home / "logs"),
        "EMATIX_FLOW_FAULT": fault,
    }
    command = [
        sys.executable,
        "-m",
        "ematix_flow.cli",
        "consume",
        "pipeline.toml",
        "--restart-on-error",
        "--no-run-log",
    ]
    with (home / f"said-{fault}").open("w") as said:
        process = subprocess.Popen(
            command, cwd=home, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def killed_at(point: str, toml: str, home: Path) -> None:
    """Run it until it dies there."""
    with consuming(toml, home, point) as process:
        process.wait(SECONDS)
        assert process.returncode == -signal.SIGKILL, (home / f"said-{point}").read_text()


def in_sqlite(home: Path) -> Counter[int]:
    with closing(sqlite3.connect(home / "shop.db")) as client:
        return Counter(row[0] for row in client.execute("SELECT n FROM numbers"))


def once(numbers: Iterable[int]) -> Counter[int]:
    return Counter(dict.fromkeys(numbers, 1))


@pytest.mark.full("RabbitMQ shows the same with the other streams that are killed")
def test_killed_at_each_point_a_subscription_is_in_the_table_once(pubsub_endpoint: str, tmp_path: Path) -> None:
    project = Project(pubsub_endpoint)
    topic = project.new_topic()
    subscription = project.new_subscription(topic)
    toml = from_pubsub(pubsub_endpoint, subscription, "") + into("sqlite", path=str(tmp_path / "shop.db"))
    for number, point in enumerate(("after_read", "after_publish", "after_checkpoint")):
        project.publish(topic, messages(range(300 * number, 300 * number + 300)))
        killed_at(point, toml, tmp_path)
    with consuming(toml, tmp_path):  # what the dead ones had comes again when its time is over
        wait_for(lambda: len(in_sqlite(tmp_path)) == 900, seconds=SECONDS)
        assert project.is_empty(subscription, seconds=15)
    assert in_sqlite(tmp_path) == once(range(900))


@pytest.mark.full
def test_a_queue_goes_to_a_table_and_to_another_queue(rabbitmq_url: str, tmp_path: Path) -> None:
    queue, copy = new_queue(rabbitmq_url), new_queue(rabbitmq_url)
    targets = f"""
[[targets]]
kind = "sqlite"
path = "{tmp_path / "shop.db"}"
[targets.table]
schema = "main"
name = "numbers"

[[targets]]
kind = "rabbitmq"
amqp_url = "{rabbitmq_url}"
queue = "{copy}"
"""
    toml = from_rabbit(rabbitmq_url, queue, "") + targets
    for first in (0, 200):
        publish(rabbitmq_url, queue, messages(range(first, first + 200)))
        assert run_pipeline(config_str=toml, once=True)["total_rows"] == 200
    assert in_sqlite(tmp_path) == once(range(400))
    found = taken(rabbitmq_url, copy, at_least=400)
    assert Counter(json.loads(body)["n"] for _, body in found) == once(range(400))
    assert len({properties.message_id for properties, _ in found}) == 400


@pytest.mark.full
def test_what_a_stream_cannot_read_goes_to_the_queues_own_dead_letters(rabbitmq_url: str, tmp_path: Path) -> None:
    queue, dead = with_dead_letters(rabbitmq_url)
    publish(rabbitmq_url, queue, ["not json", *messages(range(20)), "[1, 2"])
    toml = from_rabbit(rabbitmq_url, queue, "") + into("sqlite", path=str(tmp_path / "shop.db"))
    run_pipeline(config_str=f'{toml}\n[dlq]\nstore = "broker"\n', once=True)
    assert in_sqlite(tmp_path) == once(range(20))
    found = taken(rabbitmq_url, dead, at_least=2, seconds=20)
    assert [body for _, body in found] == [b"not json", b"[1, 2"]
    assert found[0][0].headers["x-death"][0]["reason"] == "rejected"
    assert depth(rabbitmq_url, queue) == 0


@pytest.mark.full
def test_a_topic_gets_what_a_subscription_had(pubsub_endpoint: str, tmp_path: Path) -> None:
    project = Project(pubsub_endpoint)
    topic, copy = project.new_topic(), project.new_topic()
    subscription, reader = project.new_subscription(topic), project.new_subscription(copy)
    project.publish(topic, messages(range(200)))
    there = into("pubsub", project_id=PROJECT, endpoint=pubsub_endpoint, topic=copy)
    toml = from_pubsub(pubsub_endpoint, subscription, "") + there + "anonymous_auth = true\n"
    assert run_pipeline(config_str=toml, once=True)["total_rows"] == 200
    found = project.taken(reader, at_least=200)
    assert Counter(json.loads(message.data)["n"] for message in found) == once(range(200))
    assert len({message.attributes["ematix-message-id"] for message in found}) == 200


def test_only_queues_dead_letter_by_themselves(tmp_path: Path) -> None:
    toml = f"""
name = "numbers"
source_query = "numbers"
[source]
kind = "kafka"
bootstrap_servers = "localhost:9092"
[dlq]
store = "broker"
{into("sqlite", path=str(tmp_path / "shop.db"))}
"""
    with pytest.raises(DeclarationError, match="RabbitMQ and Pub/Sub"):
        run_pipeline(config_str=toml)
