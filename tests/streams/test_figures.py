"""What a stream tells of itself while it works: lag, dead letters, late rows, and counters that only grow."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import RabbitMQConnection
from ematix_flow.backends.rabbitmq.source import RabbitMQSource
from ematix_flow.contract.stream import StreamRead
from ematix_flow.metrics.streaming import StreamMetrics
from ematix_flow.run_log.sqlite import SqliteRunLog
from ematix_flow.spool import segments
from ematix_flow.spool.receiver import Delivery
from ematix_flow.spool.segments import Segment
from ematix_flow.streaming.admin.status import stream_status
from ematix_flow.streaming.dlq import service
from ematix_flow.streaming.dlq.dead_letter import LetterSelection
from ematix_flow.streaming.runtime import runner
from tests.services.kafka import Kafka
from tests.services.server import free_port
from tests.streams.kafka_session import open_kafka
from tests.streams.kafka_topics import new_topic, send
from tests.streams.operated import GOOD, Events, declared, metrics_at, orders, run, shop
from tests.streams.rabbit_queues import new_queue, publish

pytestmark = pytest.mark.usefixtures("homes", "every_jar")


@pytest.mark.full
def test_lag_is_reported_between_the_batches_of_a_busy_stream_and_at_its_end(
    events: Events, run_log: SqliteRunLog, tmp_path: Path
) -> None:
    spec = declared(
        name="events", source=open_kafka(events.kafka), source_query=events.topic, target=shop(tmp_path),
        target_table=("main", "raw_events"), max_rows_per_batch=2,
    )  # fmt: skip
    events.arrive(1, 2, 3, 4, 5, 6)
    port, part = free_port(), f"{events.topic}-0"
    found: list[tuple[float | None, float | None]] = []

    def listen(_: Any) -> None:
        figures = metrics_at(port)
        found.append((figures.get(f"lag_rows/{part}"), figures.get(f"lag_seconds/{part}")))

    runner.run_stream(spec, once=True, run_log=run_log, metrics_port=port, listener=listen)
    rows, seconds = found[0]
    assert rows == 4
    assert seconds is not None
    assert 0 < seconds < 120
    assert stream_status(run_log, "events").lag == {part: {"rows": 0, "seconds": 0}}


@pytest.mark.full
def test_a_queue_tells_for_how_long_what_lies_in_its_spool_has_waited(rabbitmq_url: str, tmp_path: Path) -> None:
    queue = new_queue(rabbitmq_url)
    source = RabbitMQSource(RabbitMQConnection("mq", amqp_url=rabbitmq_url))
    read = StreamRead("s", queue, str(tmp_path))
    assert [(lag.rows, lag.seconds) for lag in source.lag(read, {})] == [(0, 0.0)]
    publish(rabbitmq_url, queue, ["a", "b"])
    assert [(lag.rows, lag.seconds) for lag in source.lag(read, {})] == [(2, None)]
    sent = datetime.now(timezone.utc) - timedelta(minutes=2)
    for segment, moment in ((Segment(1, 0, 1), sent), (Segment(2, 1, 1), None)):
        message = Delivery(b"{}", segment.number, timestamp=moment)
        source.folder(read).write(segment.name, segments.encode_segment(segment, [message], queue))
    ((rows, seconds),) = [(lag.rows, lag.seconds) for lag in source.lag(read, {})]
    assert (rows, round(seconds or 0, -1)) == (4, 120)
    ((rows, seconds),) = [(lag.rows, lag.seconds) for lag in source.lag(read, {"segment": 1, "rows": 1})]
    assert rows == 3
    assert 0 <= (seconds or -1) < 60  # since it came, because its publisher did not say when it was sent


def test_the_depth_of_the_dead_letters_is_reported_and_not_only_the_new_ones(
    kafka: Kafka, run_log: SqliteRunLog, tmp_path: Path
) -> None:
    topic = new_topic(kafka)
    spec = orders(kafka, topic, tmp_path)
    run(spec, run_log)
    assert stream_status(run_log, "orders").dlq_depth == 0
    send(kafka, topic, [*GOOD, {"value": b"{not json"}, {"value": json.dumps({"id": 3, "amount": "three"})}])
    run(spec, run_log)
    told = stream_status(run_log, "orders")
    assert (told.dead_letters, told.dlq_depth) == (2, 2)
    (first, _) = service.list_letters(spec)
    service.purge_letters(spec, LetterSelection(ids=(first.id,)))
    send(kafka, topic, [{"value": json.dumps({"id": 5, "amount": "5"})}])
    run(spec, run_log)
    told = stream_status(run_log, "orders")
    assert (told.dead_letters, told.dlq_depth) == (0, 1)


@pytest.mark.full
def test_a_stream_without_dead_letters_tells_no_depth(events: Events, run_log: SqliteRunLog) -> None:
    events.arrive(1)
    run(events.spec(), run_log)
    assert stream_status(run_log, "events").dlq_depth is None
    assert "dlq_depth" not in StreamMetrics("events").to_extras()
