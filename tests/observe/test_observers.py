"""One door for everybody who watches a run: all hear of it, and none can harm it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import DuckDBConnection, PostgresConnection, ematix, register_connection
from ematix_flow.alerters.dispatch import Alerts
from ematix_flow.alerters.stdout import StdoutAlerter
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.engine.batch.result import ProgressEvent, Result, TargetResult
from ematix_flow.foundation.errors import Brake, PartialFailure, Unreachable
from ematix_flow.foundation.isolation import WarnOnce
from ematix_flow.lineage import FileEmitter, SourceText
from ematix_flow.metrics import InMemorySink
from ematix_flow.observe.observers import ObservedRun, Observers
from tests.observe.test_lineage import Orders


@pytest.fixture
def spec() -> PipelineSpec:
    register_connection(PostgresConnection("shop", url="postgres://ana:geheim99@db:5432/shop"))
    register_connection(DuckDBConnection("wh", path="wh.duckdb"))

    @ematix.pipeline(target=Orders, source_connection="shop", target_connection="wh", mode="append",
                     retry={"max_attempts": 3})  # fmt: skip
    def orders(conn):
        raise AssertionError("nobody asks the function here")

    found: PipelineSpec = orders.spec  # type: ignore[attr-defined]
    return found


class Room:
    """Observers that write everything down."""

    def __init__(self, folder: Path) -> None:
        self.told = io.StringIO()
        self.said: list[str] = []
        self.events = folder / "lineage.jsonl"
        self.metrics = InMemorySink()
        self.observers = Observers(
            alerts=Alerts([StdoutAlerter(self.told)]),
            metrics=self.metrics,
            lineage=FileEmitter(self.events),
            complaints=WarnOnce(self.said.append),
        )

    def lineage(self) -> list[Any]:
        return [json.loads(line) for line in self.events.read_text().splitlines()]


@pytest.fixture
def room(project: Path) -> Room:
    return Room(project)


def result(run_id: str) -> Result:
    target = TargetResult("marts.orders", "wh", "append", "cross_db", rows_read=5, rows_inserted=5)
    return Result("orders", run_id, "success", (target,), 1.5)


def test_a_run_that_succeeds_is_counted_and_its_lineage_sent(room: Room, spec: PipelineSpec) -> None:
    with room.observers.watching(spec) as watch:
        watch.source = SourceText("SELECT id, amount, at FROM raw.orders")
        for step in ("plan", "stage", "publish"):
            watch.listener(ProgressEvent("orders", step))
        watch.succeeded(result(watch.run_id).to_dict())
    assert room.metrics.counters == {("orders", "success"): 1}
    assert set(room.metrics.observed["pipeline_step_duration_seconds"]) == {
        ("orders", "plan"), ("orders", "stage"), ("orders", "publish"),
    }  # fmt: skip
    start, complete = room.lineage()
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == complete["run"]["runId"] == watch.run_id
    assert start["inputs"] == []
    assert [one["name"] for one in complete["inputs"]] == ["shop.raw.orders"]
    assert room.told.getvalue() == ""
    assert room.said == []


def test_a_failure_goes_through_and_is_reported_once_until_it_works_again(room: Room, spec: PipelineSpec) -> None:
    for attempt in (1, 2):
        with (
            pytest.raises(Unreachable, match="no server"),
            room.observers.watching(spec, attempt=attempt),
        ):
            raise Unreachable("no server answers at postgres://ana:geheim99@db", where=spec.where, step="stage")
    with room.observers.watching(spec, attempt=3) as watch:
        watch.succeeded(result(watch.run_id).to_dict())
    titles = [line for line in room.told.getvalue().splitlines() if not line.startswith("[ALERT]   ")]
    assert titles[0] == "[ALERT] orders failed (attempt 1 of 3)"
    assert titles[1].startswith("[ALERT] orders recovered")
    assert len(titles) == 2
    assert f"where    {spec.where}" in room.told.getvalue()
    assert "while    stage" in room.told.getvalue()
    assert room.metrics.counters == {("orders", "failure"): 2, ("orders", "success"): 1}
    assert [event["eventType"] for event in room.lineage()] == ["START", "FAIL", "START", "FAIL", "START", "COMPLETE"]
    assert "geheim99" not in room.told.getvalue() + room.events.read_text()


def test_giving_up_and_the_brake_have_alerts_of_their_own(room: Room, spec: PipelineSpec) -> None:
    def last_attempt(watch: ObservedRun) -> None:
        watch.gave_up = True
        raise Unreachable("no server answers")

    with pytest.raises(Unreachable), room.observers.watching(spec, attempt=3) as watch:
        last_attempt(watch)
    with pytest.raises(Brake), room.observers.watching(spec):
        raise Brake("the load would delete 90 of 100 rows")
    assert "orders gave up after 3 attempts" in room.told.getvalue()
    assert "orders was stopped by its brake" in room.told.getvalue()


def test_an_error_that_is_not_ours_is_reported_with_the_pipelines_line(room: Room, spec: PipelineSpec) -> None:
    with pytest.raises(ZeroDivisionError), room.observers.watching(spec):
        _ = 1 / 0
    assert "ZeroDivisionError: division by zero" in room.told.getvalue()
    assert str(spec.where) in room.told.getvalue()


def test_what_a_fan_out_loaded_beside_its_failure_is_counted(room: Room, spec: PipelineSpec) -> None:
    with pytest.raises(PartialFailure), room.observers.watching(spec) as watch:
        raise PartialFailure("1 of 2 targets failed", result=result(watch.run_id))
    assert room.metrics.values["pipeline_rows_total"][("orders", "out")] == 5


def test_observers_that_all_break_harm_nothing_and_are_named_once(spec: PipelineSpec) -> None:
    class Broken:
        address = "broken://"

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(f"no {name}")

    said: list[str] = []
    broken: Any = Broken()
    observers = Observers(
        alerts=Alerts([broken], report=said.append), metrics=broken, lineage=broken, complaints=WarnOnce(said.append)
    )
    for _ in range(2):
        with pytest.raises(Unreachable), observers.watching(spec):
            raise Unreachable("no server answers")
    observers.close()
    assert len(said) == len(set(said)) <= 4
    assert any("the metrics sink does not work" in line for line in said)
    assert any("lineage to broken://" in line for line in said)


def test_a_run_that_is_interrupted_is_aborted_and_sends_no_alert(room: Room, spec: PipelineSpec) -> None:
    with pytest.raises(KeyboardInterrupt), room.observers.watching(spec):
        raise KeyboardInterrupt
    assert [event["eventType"] for event in room.lineage()] == ["START", "ABORT"]
    assert room.told.getvalue() == ""


def test_the_command_of_an_alert_leads_to_the_run_log_in_use(room: Room, spec: PipelineSpec) -> None:
    room.observers.run_log_option = " --run-log-path history.db"
    with pytest.raises(Unreachable), room.observers.watching(spec):
        raise Unreachable("no server answers", run_id="1a2b3c4d-0000-4000-8000-000000000000")
    assert "more     flow runs show 1a2b3c4d --run-log-path history.db" in room.told.getvalue()


def test_a_run_of_which_nothing_is_reported_has_succeeded(room: Room, spec: PipelineSpec) -> None:
    with room.observers.watching(spec):
        pass
    assert room.metrics.counters == {("orders", "success"): 1}


def test_a_watch_keeps_the_record_of_its_run(room: Room, spec: PipelineSpec) -> None:
    with room.observers.watching(spec, run_id="11111111-1111-4111-8111-111111111111", attempt=2) as watch:
        watch.succeeded(result("22222222-2222-4222-8222-222222222222").to_dict())
    assert watch.record is not None
    assert (watch.record.status, watch.record.attempt) == ("succeeded", 2)
    assert watch.record.run_id.startswith("2222")
    assert room.lineage()[0]["run"]["runId"].startswith("1111")
