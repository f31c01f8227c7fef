"""Rewinding a stream: what is said first, what is read again, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import RabbitMQConnection
from ematix_flow.foundation.errors import FlowError, LeaseHeld, PlanError, Unsupported
from ematix_flow.run_log.sqlite import SqliteRunLog
from ematix_flow.streaming.admin import checkpoint_check, inspection, rewind
from ematix_flow.streaming.admin.check_findings import OK
from ematix_flow.streaming.admin.checkpoint_check import check_all
from ematix_flow.streaming.admin.status import stream_status
from ematix_flow.streaming.runtime.checkpoint_folder import CheckpointFolder
from tests.streams.kafka_topics import group_offsets, new_topic
from tests.streams.operated import Events, counted, declared, rows, run, shop, tables, watched

pytestmark = pytest.mark.usefixtures("homes", "every_jar")
EARLIEST, LATEST = rewind.RewindTarget.of("earliest"), rewind.RewindTarget.of("latest")


@pytest.mark.proves("a rewind reads again, and asks first")
def test_a_rewind_reads_again_and_says_first_which_targets_get_rows_twice(
    events: Events, run_log: SqliteRunLog
) -> None:
    spec = events.spec()
    events.arrive(1, 2, 3)
    run(spec, run_log)
    assert counted(events.folder) == (3, 3)
    before = CheckpointFolder.of(spec).prepare()
    with pytest.raises(PlanError, match=r"main.raw_events is appended to, and gets the rows twice") as refused:
        rewind.rewind_stream(spec, EARLIEST, confirmed=False, run_log=run_log)
    assert "--yes" in str(refused.value.hint)
    assert CheckpointFolder.of(spec).prepare() == before
    made = rewind.rewind_stream(spec, EARLIEST, confirmed=True, run_log=run_log)
    assert any("main.events takes rows again" in text for text in made.notes)
    assert Path(str(made.kept), "spark", "commits").is_dir()
    assert CheckpointFolder.of(spec).prepare() != before
    run(spec, run_log)
    assert counted(events.folder) == (6, 3)
    told = stream_status(run_log, "events")
    assert str(told.last_replay).startswith("rewind, succeeded")


@pytest.mark.full
def test_a_new_checkpoint_may_begin_where_a_batch_ended(events: Events, run_log: SqliteRunLog, tmp_path: Path) -> None:
    spec = events.spec()
    for some in ((1, 2), (3,)):
        events.arrive(*some)
        run(spec, run_log)
    told = run_log.list_runs(pipeline="events")[0][0].extras
    assert (told["batch"], told["offsets"]) == (1, {events.topic: {"0": 3}})
    with pytest.raises(PlanError, match="has no batch 7"):
        rewind.offsets_behind(spec, 7)
    made = rewind.rewind_stream(spec, rewind.offsets_behind(spec, 0), confirmed=True, run_log=run_log)
    assert [(step.here, step.there, step.rows) for step in made.steps] == [("3", "2", 1)]
    run(spec, run_log)
    assert counted(events.folder) == (4, 3)


@pytest.mark.full
def test_a_folder_has_moments_and_no_batches_to_begin_at(tmp_path: Path, run_log: SqliteRunLog) -> None:
    source = watched(tmp_path, {"one.jsonl": ([{"id": 1}], 1_700_000_000)})
    spec = declared(name="events", source=source, source_query="events", targets=tables(tmp_path))
    run(spec, run_log)
    with pytest.raises(FlowError):
        rewind.rewind_stream(spec, rewind.offsets_behind(spec, 0), confirmed=True, run_log=run_log)


@pytest.mark.full("a moment of Kafka is shown by the default run")
def test_a_moment_of_a_folder_means_the_files_since_then(tmp_path: Path, run_log: SqliteRunLog) -> None:
    files = {"old": ([{"id": 1}], 1_700_000_000), "new": ([{"id": 2}], 1_750_000_000)}
    source = watched(tmp_path, {f"{name}.jsonl": said for name, said in files.items()})
    spec = declared(name="events", source=source, source_query="events", targets=tables(tmp_path))
    run(spec, run_log)
    place = rewind.RewindTarget.of("2025-01-01")
    rewind.rewind_stream(spec, place, confirmed=True, run_log=run_log)
    run(spec, run_log)
    assert rows(tmp_path, "SELECT id FROM raw_events") == [(1,), (2,), (2,)]


@pytest.mark.full
def test_a_stream_that_runs_is_not_rewound(events: Events, run_log: SqliteRunLog) -> None:
    spec = events.spec()
    run_log.claim("events", "elsewhere:1:0", 60)
    with pytest.raises(LeaseHeld):
        rewind.rewind_stream(spec, EARLIEST, confirmed=True, run_log=run_log)
    with pytest.raises(LeaseHeld):
        checkpoint_check.repair_checkpoint(spec, confirmed=True, run_log=run_log)


@pytest.mark.full
def test_a_rewind_that_was_killed_in_the_middle_is_finished_by_the_next_start(
    events: Events, run_log: SqliteRunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = events.spec()
    events.arrive(1, 2)
    run(spec, run_log)

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFolder, "_put_aside", dies)
        with pytest.raises(KeyboardInterrupt):
            rewind.rewind_stream(spec, EARLIEST, confirmed=True, run_log=run_log)
    assert finding(spec, "generation") == "to do"
    assert (CheckpointFolder.of(spec).spark / "commits").is_dir()
    run(spec, run_log)
    assert counted(events.folder) == (4, 2)
    assert finding(spec, "generation") == OK


def test_offsets_of_kafka_are_previewed_part_by_part_and_then_read_again(events: Events, run_log: SqliteRunLog) -> None:
    topic = new_topic(events.kafka, partitions=2)
    events = replace(events, topic=topic)
    for partition in (0, 1):
        events.arrive(*range(partition, 10, 2), partition=partition)
    spec = events.spec()
    run(spec, run_log)
    assert counted(events.folder) == (10, 10)
    place = rewind.RewindTarget.of(json.dumps({topic: {"0": 3}}))
    plan = rewind.plan_rewind(spec, place)
    assert [(step.part, step.here, step.there, step.rows) for step in plan.steps] == [
        (f"{topic}-0", "5", "3", 2),
        (f"{topic}-1", "5", "5", 0),
    ]
    assert plan.concerns == ("main.raw_events is appended to, and gets the rows twice",)
    rewind.rewind_stream(spec, place, confirmed=True, run_log=run_log)
    told = group_offsets(events.kafka, "ematix-flow-events")  # the group of other tests, too
    assert {part: told.get(part) for part in (f"{topic}-0", f"{topic}-1")} == {f"{topic}-0": 3, f"{topic}-1": 5}
    run(spec, run_log)
    assert rows(events.folder, "SELECT id FROM raw_events") == sorted([(one,) for one in (*range(10), 6, 8)])
    assert counted(events.folder) == (12, 10)


@pytest.mark.full("other rewinds of Kafka are shown by the default run")
def test_earliest_is_earliest_although_the_connection_says_latest(events: Events, run_log: SqliteRunLog) -> None:
    events.arrive(1, 2)
    spec = events.spec(auto_offset_reset="latest")
    rewind.rewind_stream(spec, EARLIEST, confirmed=True, run_log=run_log)
    run(spec, run_log)
    assert rows(events.folder, "SELECT id FROM raw_events") == [(1,), (2,)]


@pytest.mark.full("the words are shown by a unit test")
def test_messages_that_would_never_be_read_are_counted_and_need_a_word(events: Events, run_log: SqliteRunLog) -> None:
    events.arrive(1, 2)
    spec = events.spec()
    run(spec, run_log)
    events.arrive(3, 4, 5)
    with pytest.raises(PlanError, match="3 rows that were not read yet would never be"):
        rewind.rewind_stream(spec, LATEST, confirmed=False, run_log=run_log)
    rewind.rewind_stream(spec, LATEST, confirmed=True, run_log=run_log)
    events.arrive(6)
    run(spec, run_log)
    assert rows(events.folder, "SELECT id FROM raw_events") == [(1,), (2,), (6,)]


@pytest.mark.full
def test_a_moment_of_kafka_is_found_by_the_times_of_its_messages(events: Events, run_log: SqliteRunLog) -> None:
    now = datetime.now(timezone.utc)
    for hours in (3, 2, 1):
        events.arrive(hours, timestamp=int((now - timedelta(hours=hours)).timestamp() * 1000))
    spec = events.spec()
    run(spec, run_log)
    plan = rewind.plan_rewind(spec, rewind.RewindTarget.of((now - timedelta(minutes=90)).isoformat()))
    assert [(step.there, step.rows) for step in plan.steps] == [("2", 1)]


@pytest.mark.full
def test_a_queue_has_no_past_to_go_back_to(tmp_path: Path) -> None:
    queue = RabbitMQConnection("mq", amqp_url="amqp://guest:guest@127.0.0.1:1/")
    spec = declared(
        name="events", source=queue, source_query="orders", target=shop(tmp_path), target_table=("main", "raw_events")
    )
    for place in ("earliest", "latest", "2026-01-01", '{"orders": 5}'):
        with pytest.raises(Unsupported, match="cannot be rewound"):
            rewind.plan_rewind(spec, rewind.RewindTarget.of(place))


def finding(spec: Any, about: str) -> str:
    """How one line of the check-up stands."""
    return next(item.status for item in check_all(inspection.inspect_checkpoint(spec)) if item.about == about)
