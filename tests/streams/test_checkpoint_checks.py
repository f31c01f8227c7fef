"""A stream's checkpoint: looked at, damaged in every way that happens, and repaired."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from ematix_flow import DeltaLocalConnection, ObjectStoreLocalConnection, Target
from ematix_flow.foundation.errors import PlanError, RunFailed
from ematix_flow.run_log.sqlite import SqliteRunLog
from ematix_flow.streaming.admin import checkpoint_check, inspection
from ematix_flow.streaming.admin.check_findings import DAMAGED, OK
from ematix_flow.streaming.admin.checkpoint_check import check_all
from ematix_flow.streaming.admin.commit_tokens import known_generations
from ematix_flow.streaming.runtime.checkpoint_folder import CheckpointFolder
from tests.streams.kafka_session import open_kafka
from tests.streams.kafka_topics import drop_before, new_topic, send
from tests.streams.operated import Events, counted, declared, run

pytestmark = pytest.mark.usefixtures("homes", "every_jar")


def findings(spec: Any) -> dict[str, str]:
    return {item.about: item.status for item in check_all(inspection.inspect_checkpoint(spec))}


def drained(events: Events, run_log: SqliteRunLog) -> tuple[Any, CheckpointFolder, int]:
    """A stream with two batches done, its folder, and the number of the last batch."""
    spec = events.spec()
    for some in ((1, 2), (3,)):
        events.arrive(*some)
        run(spec, run_log)
    assert counted(events.folder) == (3, 3)
    last = CheckpointFolder.of(spec).last_committed()
    assert last is not None
    return spec, CheckpointFolder.of(spec), last


def test_a_half_written_commit_is_removed_and_no_row_comes_twice(events: Events, run_log: SqliteRunLog) -> None:
    spec, folder, last = drained(events, run_log)
    found = check_all(inspection.inspect_checkpoint(spec))
    assert {item.status for item in found} == {OK}, [item for item in found if item.status != OK]
    assert {"token of main.raw_events", "token of main.events", "offset log", "commit log", "source", "order"} <= {
        item.about for item in found
    }
    (folder.spark / "commits" / str(last)).write_text("")
    assert findings(spec)["commit log"] == DAMAGED
    made = checkpoint_check.repair_checkpoint(spec, confirmed=False, run_log=run_log)
    assert ([step.kind for step in made.done], made.waiting) == (["remove"], ())
    assert {item.status for item in made.findings} == {OK}
    events.arrive(4)
    run(spec, run_log)
    assert counted(events.folder) == (4, 4)


@pytest.mark.full("its twin, the commit, is shown by the default run")
def test_a_half_written_plan_is_removed_only_while_no_target_has_its_batch(
    events: Events, run_log: SqliteRunLog
) -> None:
    spec, folder, last = drained(events, run_log)
    (folder.spark / "offsets" / str(last + 1)).write_text("v1\n")
    assert findings(spec)["offset log"] == DAMAGED
    published = replace(inspection.inspect_checkpoint(spec), tokens={"main.raw_events": last + 2})
    assert checkpoint_check.plan_repair(published) == []
    checkpoint_check.repair_checkpoint(spec, confirmed=False, run_log=run_log)
    assert set(findings(spec).values()) == {OK}
    events.arrive(4)
    run(spec, run_log)
    assert counted(events.folder) == (4, 4)


@pytest.mark.full("the repair is planned by a unit test")
def test_a_lost_generation_is_found_again_in_the_targets(events: Events, run_log: SqliteRunLog) -> None:
    spec, folder, last = drained(events, run_log)
    known = folder.prepare()
    (folder.root / "flow.json").unlink()
    for file in (str(last), f".{last}.crc"):  # the last batch is in the targets, and its commit was lost with the file
        (folder.spark / "commits" / file).unlink(missing_ok=True)
    assert findings(spec)["generation"] == DAMAGED
    waiting = checkpoint_check.repair_checkpoint(spec, confirmed=False, run_log=run_log)
    assert [step.kind for step in waiting.waiting] == ["generation"]
    assert not (folder.root / "flow.json").exists()
    checkpoint_check.repair_checkpoint(spec, confirmed=True, run_log=run_log)
    assert folder.prepare() == known
    run(spec, run_log)
    assert counted(events.folder) == (3, 3)


LAKES = {
    "delta": lambda folder: Target(connection=DeltaLocalConnection("lake", path=str(folder)), table=("raw", "events")),
    "files": lambda folder: Target(
        connection=ObjectStoreLocalConnection("lake", path=str(folder), format="json_lines"), prefix="raw/events"
    ),
}


@pytest.mark.parametrize("lake", LAKES)
@pytest.mark.parametrize("state", ["kept", pytest.param("lost", marks=pytest.mark.full)])
def test_a_lost_generation_is_found_again_in_a_lake(
    events: Events, run_log: SqliteRunLog, lake: str, state: str, tmp_path: Path
) -> None:
    if (lake, state) == ("files", "lost"):
        pytest.skip("files know nothing of their writers but by the state")
    spec = replace(events.spec(), targets=declared_targets(LAKES[lake](tmp_path / "lake")))
    events.arrive(1, 2)
    run(spec, run_log)
    folder = CheckpointFolder.of(spec)
    known, last = folder.prepare(), folder.last_committed()
    (folder.root / "flow.json").unlink()
    for file in (str(last), f".{last}.crc"):
        (folder.spark / "commits" / file).unlink(missing_ok=True)
    if state == "lost":
        shutil.rmtree(tmp_path / "lake" / "_ematix_flow")
    events.arrive(3)
    with pytest.raises(RunFailed, match=r"flow.json is gone"):
        run(spec, run_log)
    checkpoint_check.repair_checkpoint(spec, confirmed=True, run_log=run_log)
    assert folder.prepare() == known
    run(spec, run_log)
    if lake == "delta":
        found = DeltaTable(str(tmp_path / "lake" / "raw" / "events")).to_pyarrow_table().column("id").to_pylist()
    else:
        texts = [path.read_text() for path in (tmp_path / "lake").rglob("part-*.json*")]
        found = [json.loads(line)["id"] for text in texts for line in text.splitlines()]
    assert sorted(found) == [1, 2, 3]


def declared_targets(*targets: Target) -> Any:
    """As a stream has them."""
    source = ObjectStoreLocalConnection("nowhere", path="/nowhere", format="json_lines")
    return declared(name="any", source=source, source_query="x", targets=list(targets)).targets


@pytest.mark.proves("flow doctor checkpoint compares transactions with the checkpoint")
def test_transactions_and_dead_letters_are_compared_with_the_checkpoint(
    events: Events, run_log: SqliteRunLog, tmp_path: Path
) -> None:
    copies, dead = new_topic(events.kafka), "dead letters"
    spec = declared(
        name="events", source=open_kafka(events.kafka), source_query=events.topic, target=open_kafka(events.kafka),
        target_topic=copies, delivery="exactly_once", transform_on_error="dlq", fields={"id": "BIGINT"},
    )  # fmt: skip
    events.arrive(1, 2)
    send(events.kafka, events.topic, [{"value": b"{not json"}])
    run(spec, run_log)
    found = {item.about: item for item in check_all(inspection.inspect_checkpoint(spec))}
    assert {name: found[name].status for name in (f"token of {copies}", dead)} == {f"token of {copies}": OK, dead: OK}
    assert found[f"token of {copies}"].says == found[dead].says == "batch 0 is the newest"
    folder, kept = CheckpointFolder.of(spec), tmp_path / "backup"
    shutil.copytree(folder.root, kept)
    events.arrive(3)
    send(events.kafka, events.topic, [{"value": b"{not json either"}])
    run(spec, run_log)
    assert findings(spec)[f"token of {copies}"] == OK
    assert known_generations(spec, folder, spec.targets[0]) == {folder.prepare(): 2}
    shutil.rmtree(folder.spark)
    shutil.copytree(kept / "spark", folder.spark)
    assert (findings(spec)[f"token of {copies}"], findings(spec)[dead]) == (DAMAGED, DAMAGED)


@pytest.mark.full("the judgement is shown by a unit test")
def test_a_checkpoint_that_is_older_than_its_targets_is_damaged(events: Events, run_log: SqliteRunLog) -> None:
    spec, folder, _ = drained(events, run_log)
    kept = events.folder / "backup"
    shutil.copytree(folder.root, kept)
    for number in (4, 5):
        events.arrive(number)
        run(spec, run_log)
    shutil.rmtree(folder.root)
    shutil.copytree(kept, folder.root)
    found = {item.about: item for item in check_all(inspection.inspect_checkpoint(spec))}
    assert found["token of main.raw_events"].status == DAMAGED
    assert "flow stream rewind events" in str(found["token of main.raw_events"].next)


@pytest.mark.full
def test_messages_that_kafka_dropped_are_reported_before_the_stream_finds_out(
    events: Events, run_log: SqliteRunLog
) -> None:
    spec = events.spec()
    events.arrive(1, 2)
    run(spec, run_log)
    events.arrive(3, 4, 5)
    drop_before(events.kafka, events.topic, 0, 4)
    found = {item.about: item for item in check_all(inspection.inspect_checkpoint(spec))}
    assert found["source"].status == DAMAGED
    assert f"2 message(s) of {events.topic}-0 from 2, kept from 4 on" in found["source"].says


@pytest.mark.full
def test_a_start_on_a_damaged_checkpoint_says_who_can_look_at_it(events: Events, run_log: SqliteRunLog) -> None:
    spec = events.spec()
    events.arrive(1)
    run(spec, run_log)
    folder = CheckpointFolder.of(spec)
    (folder.spark / "offsets" / str(folder.last_committed())).write_text("v1\n{\n")
    with pytest.raises(PlanError, match="the checkpoint of events is damaged") as refused:
        run(spec, run_log)
    assert "flow doctor checkpoint events" in str(refused.value.hint)
    assert findings(spec)["offset log"] == DAMAGED
