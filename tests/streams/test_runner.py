"""What holds for every stream that runs: one runner, orderly stops, restarts, targets that fall behind, bad records."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import (
    Annotated,
    BigInt,
    KafkaConnection,
    ObjectStoreLocalConnection,
    SQLiteConnection,
    Target,
    ematix,
    pk,
    run_streaming_pipeline,
)
from ematix_flow.foundation.errors import Brake, DriftError, FlowError, LeaseHeld, PartialFailure, Unreachable
from ematix_flow.run_log.default import default_run_log
from tests.services.kafka import Kafka
from tests.services.server import free_port
from tests.streams.kafka_topics import everything, new_topic, send

pytestmark = pytest.mark.usefixtures("every_jar")
ROOT = Path(__file__).resolve().parents[2]


class Place:
    """A topic, a database, and streams between them."""

    def __init__(self, kafka: Kafka, folder: Path) -> None:
        self.kafka, self.folder, self.topic = kafka, folder, new_topic(kafka)
        self.events = KafkaConnection("events", bootstrap_servers=kafka.open, group_id=self.topic)
        self.shop = SQLiteConnection("shop", path=str(folder / "shop.db"))
        self.name = f"stream-{folder.name}"

    def tell(self, *values: Any) -> None:
        send(
            self.kafka,
            self.topic,
            [{"value": one if isinstance(one, bytes) else json.dumps(one).encode()} for one in values],
        )

    def drain(self, **options: Any) -> Any:
        always = {
            "name": self.name, "source": self.events, "source_query": self.topic, "checkpoint": str(self.folder / "kept"),
        }  # fmt: skip
        if "targets" not in options and "target" not in options:
            options |= {"target": self.shop, "target_table": ("main", "numbers")}
        return run_streaming_pipeline(once=True, **{**always, **options})

    def numbers(self, table: str = "numbers") -> list[int]:
        with closing(sqlite3.connect(self.folder / "shop.db")) as client:
            return sorted(row[0] for row in client.execute(f"SELECT n FROM {table}"))

    def letters(self) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.folder / "shop.db")) as client:
            return client.execute(
                "SELECT stage, error, payload, target FROM ematix_flow_dlq_records ORDER BY position"
            ).fetchall()


@pytest.fixture
def place(kafka: Kafka, tmp_path: Path) -> Place:
    return Place(kafka, tmp_path)


def numbers(*them: int) -> list[dict[str, int]]:
    return [{"n": n} for n in them]


@ematix.table(schema="main", name="numbers")
class Numbers:
    n: Annotated[BigInt, pk()]


@pytest.mark.full
def test_a_record_that_cannot_be_decoded_stops_the_stream_and_nothing_is_written(place: Place) -> None:
    place.tell({"n": 1}, b"{not json", {"n": 2})
    with pytest.raises(FlowError, match="cannot be decoded"):
        place.drain(fields={"n": "BIGINT"})
    assert not (place.folder / "shop.db").exists() or "numbers" not in _tables(place)


def _tables(place: Place) -> list[str]:
    with closing(sqlite3.connect(place.folder / "shop.db")) as client:
        found = [row[0] for row in client.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return [name for name in found if client.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]]


def test_bad_records_are_set_aside_one_by_one_with_their_bytes(place: Place) -> None:
    place.tell({"n": 1}, b"{not json", {"n": 2}, {"n": None}, {"n": 3})
    outcome = place.drain(target=Numbers, target_connection=place.shop, mode="append", transform_on_error="dlq")
    assert outcome.total_rows == 5
    assert place.numbers() == [1, 2, 3]
    found = place.letters()
    assert [(stage, bytes(payload)) for stage, _, payload, _ in found] == [
        ("decode", b"{not json"), ("write", b'{"n": null}'),
    ]  # fmt: skip
    assert "n" in found[1][1]
    with closing(sqlite3.connect(place.folder / "shop.db")) as client:
        ((version, written),) = client.execute(
            "SELECT DISTINCT pipeline_version, payload_format FROM ematix_flow_dlq_records"
        )
    assert (len(version), written) == (12, "json")
    place.tell({"n": 4})
    place.drain(target=Numbers, target_connection=place.shop, mode="append", transform_on_error="dlq")
    assert place.numbers() == [1, 2, 3, 4]
    assert len(place.letters()) == 2


@pytest.mark.full
def test_a_transform_that_fails_on_a_row_sets_that_row_aside(place: Place) -> None:
    place.tell({"n": 1, "of": 2}, {"n": 1, "of": 0}, {"n": 3, "of": 1})
    place.drain(transform_sql="SELECT CAST(n / of AS INT) AS n FROM source", transform_on_error="dlq")
    assert place.numbers() == [0, 3]
    ((stage, error, payload, _),) = place.letters()
    assert stage == "transform"
    assert json.loads(payload) == {"n": 1, "of": 0}
    assert "zero" in error.lower()


@pytest.mark.full
def test_bad_records_are_only_counted_where_they_are_to_be_dropped(place: Place) -> None:
    place.tell({"n": 1}, b"{not json")
    place.drain(transform_on_error="drop", fields={"n": "BIGINT"})
    assert place.numbers() == [1]


@pytest.mark.full
def test_bad_records_go_to_the_topic_that_is_named(place: Place) -> None:
    dead = new_topic(place.kafka)
    place.tell({"n": 1}, b"{not json")
    place.drain(transform_on_error="dlq", dead_letter_topic=dead, fields={"n": "BIGINT"})
    (letter,) = everything(place.kafka, dead)
    assert letter.value() == b"{not json"
    headers = {name: value.decode() for name, value in letter.headers()}
    assert headers["ematix-stage"] == "decode"
    assert place.numbers() == [1]


def test_too_many_bad_records_pull_the_brake(place: Place) -> None:
    place.tell({"n": 1}, b"one", b"two", b"three")
    with pytest.raises(Brake, match="3 of 4 messages"):
        place.drain(transform_on_error="dlq", max_bad_fraction=0.5, fields={"n": "BIGINT"})


def test_targets_share_one_read_and_one_that_fails_catches_up(place: Place) -> None:
    blocked = place.folder / "blocked"
    blocked.write_text("not a folder")
    lake = ObjectStoreLocalConnection("lake", path=str(blocked), format="csv")
    targets = [Target(connection=place.shop, table=("main", "numbers")), Target(connection=lake, prefix="raw/numbers")]
    fanned = {"targets": targets, "continue_on_target_failure": True}
    place.tell(*numbers(1, 2))
    with pytest.raises(PartialFailure, match=r"behind: raw/numbers \(1 micro-batch") as failed:
        place.drain(**fanned)
    assert (failed.value.exit_code, place.numbers()) == (8, [1, 2])
    place.tell(*numbers(3))
    with pytest.raises(PartialFailure, match=r"behind: raw/numbers \(2 micro-batch"):
        place.drain(**fanned)
    (record, _), _ = default_run_log().list_runs(pipeline=place.name)
    assert (record.status, record.extras["targets_behind"]) == ("failed", 2)
    assert record.extras["errors_total"] == 2  # the target, and so the stream
    blocked.unlink()
    assert place.drain(**fanned).total_rows == 0
    record = default_run_log().list_runs(pipeline=place.name)[0][0]
    assert (record.status, record.extras["rows_written_total"], record.extras["targets_behind"]) == ("succeeded", 3, 0)
    assert place.numbers() == [1, 2, 3]
    files = list(blocked.rglob("*.csv"))
    assert sorted(line.split(",")[0] for path in files for line in path.read_text().splitlines()[1:]) == ["1", "2", "3"]
    place.tell(*numbers(4))
    place.drain(**fanned)
    assert place.numbers() == [1, 2, 3, 4]


@pytest.mark.full
def test_a_target_that_fails_stops_the_stream_unless_configured_otherwise(place: Place) -> None:
    blocked = place.folder / "blocked"
    blocked.write_text("not a folder")
    lake = ObjectStoreLocalConnection("lake", path=str(blocked), format="csv")
    place.tell(*numbers(1))
    with pytest.raises(FlowError, match="blocked"):
        place.drain(
            targets=[Target(connection=lake, prefix="raw"), Target(connection=place.shop, table=("main", "numbers"))]
        )


def test_a_second_runner_is_refused(place: Place) -> None:
    place.tell(*numbers(1))
    place.drain()
    first = _consuming(place)
    try:
        _until(lambda: place.numbers() == [1], first)
        place.tell(*numbers(2))
        _until(lambda: place.numbers() == [1, 2], first)
        with pytest.raises(LeaseHeld, match="already running"):
            place.drain()
    finally:
        first.send_signal(signal.SIGTERM)
        said, errors = first.communicate(timeout=60)
    assert first.returncode == 0, errors
    assert "1 rows" in said


def _consuming(place: Place, *flags: str) -> subprocess.Popen[str]:
    """`flow consume` in a process of its own."""
    (place.folder / "stream.toml").write_text(f"""
pipeline_name = "{place.name}"
source_query = "{place.topic}"
checkpoint = "{place.folder / "kept"}"
idle_pause_ms = 50

[source]
kind = "kafka"
bootstrap_servers = "{place.kafka.open}"
group_id = "{place.topic}"

[target]
kind = "sqlite"
path = "{place.folder / "shop.db"}"

[target.table]
schema = "main"
name = "numbers"
""")
    command = [sys.executable, "-m", "ematix_flow.cli", "consume", str(place.folder / "stream.toml"), *flags]
    return subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def _until(reached: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.full
def test_a_running_stream_tells_its_figures(place: Place) -> None:
    port = free_port()
    place.tell(*numbers(1, 2, 3))
    stream = _consuming(place, "--metrics-port", str(port))

    def figures() -> str:
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2).read().decode()
        except OSError:
            return ""

    try:
        _until(lambda: f'ematix_streaming_rows_consumed_total{{pipeline="{place.name}"}} 3.0' in figures(), stream)
        _until(lambda: "ematix_streaming_lag_rows" in figures(), stream)
    finally:
        stream.send_signal(signal.SIGTERM)
        stream.communicate(timeout=60)


def test_a_broker_that_does_not_answer_is_reported_in_one_sentence(place: Place) -> None:
    place.events = KafkaConnection("events", bootstrap_servers=f"127.0.0.1:{free_port()}", group_id="nobody")
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1"):
        place.drain()


@pytest.mark.full
def test_a_broker_that_stays_away_is_tried_again_as_often_as_allowed(place: Place) -> None:
    place.events = KafkaConnection("events", bootstrap_servers=f"127.0.0.1:{free_port()}", group_id="late")
    with pytest.raises(Unreachable):
        place.drain(restart_on_error=True, initial_backoff_ms=100, max_backoff_ms=200, max_restarts=2)
    lives, _ = default_run_log().list_runs(pipeline=place.name)
    assert [(life.status, life.attempt, life.extras["restarts"]) for life in lives] == [
        ("failed", 3, 2), ("failed", 2, 1), ("failed", 1, 0),
    ]  # fmt: skip
    assert [life.extras["restart_of"] for life in lives] == [lives[1].run_id, lives[2].run_id, None]


@pytest.mark.full
def test_a_table_that_is_dropped_between_two_runs_is_made_again(place: Place) -> None:
    place.tell(*numbers(1))
    place.drain()
    with closing(sqlite3.connect(place.folder / "shop.db")) as client:
        client.execute("DROP TABLE numbers")
    place.tell(*numbers(2))
    place.drain()
    assert place.numbers() == [2]


@pytest.mark.full
def test_a_stream_runs_in_any_thread(place: Place) -> None:
    """Only the main thread can hear signals; the others do without."""
    place.tell(*numbers(1))
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(place.drain()))
    thread.start()
    thread.join(90)
    assert ended[0].total_rows == 1
    assert place.numbers() == [1]


@pytest.mark.full
def test_what_the_messages_bring_anew_is_an_error_where_drift_is(place: Place) -> None:
    place.tell({"n": 1})
    place.drain(on_drift="error")
    place.tell({"n": 2, "more": "x"})
    with pytest.raises(DriftError, match="more"):
        place.drain(on_drift="error")
    assert place.numbers() == [1]
