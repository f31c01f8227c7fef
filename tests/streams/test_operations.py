"""Operating a stream: how it stands, stopping it, and every command in its own words."""

from __future__ import annotations

import json
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import ObjectStoreLocalConnection, Target
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.run_log.schedule import Action
from ematix_flow.run_log.sqlite import SqliteRunLog
from ematix_flow.scheduler.stream_requests import stop_stream
from ematix_flow.streaming.admin.status import last_attempt, stream_status
from tests.streams.kafka_session import open_kafka
from tests.streams.operated import (
    Events,
    declared,
    ended,
    eventually,
    flow,
    here,
    rows,
    run,
    running,
    tables,
)

pytestmark = pytest.mark.usefixtures("homes", "every_jar")


def test_a_stream_that_was_drained_is_reported_with_its_figures(events: Events, run_log: SqliteRunLog) -> None:
    spec = events.spec()
    assert stream_status(run_log, "events").status == "never"
    events.arrive(1, 2, 3)
    run(spec, run_log)
    told = stream_status(run_log, "events")
    assert (told.status, told.is_running, told.restarts, told.targets_behind) == ("succeeded", False, 0, 0)
    assert (told.rows, told.batches) == (3, 1)
    assert told.since is not None
    assert told.to_dict()["running"] is False


@pytest.mark.parametrize(
    "how", ["by a signal", pytest.param("by the run log", marks=pytest.mark.full("its twin stops by a signal"))]
)
def test_a_running_stream_is_stopped_between_two_batches_and_waited_for(
    events: Events, tmp_path: Path, how: str
) -> None:
    (tmp_path / "pipeline.toml").write_text(events.toml())
    events.arrive(1, 2)
    process = flow("consume", "pipeline.toml", "--run-log", "runs.db", folder=tmp_path)
    try:
        run_log = SqliteRunLog(str(tmp_path / "runs.db"))
        eventually(lambda: (tmp_path / "shop.db").exists() and _has_rows(tmp_path, 2))
        told = stream_status(run_log, "events")
        assert told.is_running
        if how == "by a signal":
            stopped = stop_stream(run_log, "events", seconds=60)
            assert stopped.standing is not None
            assert stopped.standing.status == "succeeded"
        else:
            run_log.enqueue(Action("cancel", "events", told.run_id, by="somebody elsewhere"))
        code, _, err = ended(process)
        assert code == 0, err
        assert stream_status(run_log, "events").status == "succeeded"
        assert run_log.pending_actions() == []
        assert stop_stream(run_log, "events").standing is None
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()


@pytest.mark.full
def test_every_attempt_of_a_stream_is_a_record_and_a_stop_request_for_the_first_reaches_the_last(
    events: Events, run_log: SqliteRunLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events.arrive(1, 2)
    lake, away = tmp_path / "lake", tmp_path / "away"
    with running(_fanned_out(events, lake), run_log) as figures:
        eventually(lambda: figures().get("rows_written_total") == 4)
        lake.rename(away)
        lake.write_text("a file where the folder was")
        events.arrive(3)
        eventually(lambda: figures().get("restarts_total", 0) >= 2)
        assert stream_status(run_log, "events").is_running
        assert figures()["rows_written_total"] == 4
        lake.unlink()
        away.rename(lake)
        eventually(lambda: figures().get("rows_written_total") == 6)
        first = run_log.list_runs(pipeline="events", limit=50)[0][-1]
        run_log.enqueue(Action("cancel", "events", first.run_id, by="somebody"))
    lives, _ = run_log.list_runs(pipeline="events", limit=50)
    assert [life.status for life in lives] == ["succeeded", *["failed"] * (len(lives) - 1)]
    assert [life.extras["restarts"] for life in lives] == list(range(len(lives)))[::-1]
    assert [life.extras["restart_of"] for life in lives] == [*(life.run_id for life in lives[1:]), None]
    assert all("a file stands where a folder belongs" in str(life.error_summary) for life in lives[1:])
    told, last = stream_status(run_log, "events"), lives[0].extras
    assert (told.rows, told.batches, told.restarts, told.since) == (3, 2, len(lives) - 1, first.started_at)
    assert (last["rows_written_total"], last["errors_total"]) == (6, len(lives) - 1)
    assert last_attempt(run_log, first.run_id) == lives[0]
    assert _ids(lake) == ["1", "2", "3"]
    shown = here(capsys, "runs", "show", lives[0].run_id, "--run-log", str(tmp_path / "runs.db"))[1]
    assert f"of {lives[1].run_id}, after: " in shown
    assert lives[0].run_id in here(capsys, "runs", "list", "--run-log", str(tmp_path / "runs.db"))[1]
    assert (
        f"flow runs show {lives[1].run_id}"
        in here(capsys, "stream", "status", "events", "--run-log", str(tmp_path / "runs.db"))[1]
    )


@pytest.mark.full
def test_a_target_that_was_away_gets_what_it_missed_while_nothing_comes(
    events: Events, run_log: SqliteRunLog, tmp_path: Path
) -> None:
    events.arrive(1, 2)
    (lake := tmp_path / "lake").write_text("a file where the folder belongs")
    with running(_fanned_out(events, lake, continue_on_target_failure=True), run_log) as figures:
        eventually(lambda: figures().get("targets_behind") == 1)
        assert figures()["errors_total"] == 1
        lake.unlink()
        eventually(lambda: figures().get("targets_behind") == 0)
        eventually(lambda: figures().get("rows_written_total") == 4)
        assert (figures()["batches_total"], figures()["restarts_total"]) == (1, 0)
        assert _ids(lake) == ["1", "2"]
        run_log.enqueue(Action("cancel", "events", stream_status(run_log, "events").run_id, by="somebody"))


def _ids(lake: Path) -> list[str]:
    lines = [line for path in lake.rglob("*.csv") for line in path.read_text().splitlines()[1:]]
    return sorted(line.split(",")[0] for line in lines)


def _fanned_out(events: Events, lake: Path, **options: Any) -> StreamSpec:
    """Into a table and into a folder; what fails is tried again at once."""
    files = ObjectStoreLocalConnection("lake", path=str(lake), format="csv")
    return declared(
        name="events", source=open_kafka(events.kafka), source_query=events.topic, idle_pause_ms=50,
        targets=[*tables(events.folder)[:1], Target(connection=files, prefix="raw/events")],
        restart_on_error=True, initial_backoff_ms=300, max_backoff_ms=300, **options,
    )  # fmt: skip


def _has_rows(folder: Path, count: int) -> bool:
    try:
        return len(rows(folder, "SELECT * FROM raw_events")) == count
    except Exception:
        return False


def test_the_commands_look_repair_and_rewind_in_the_same_words(
    events: Events, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("warnings.showwarning", warnings.showwarning)
    (tmp_path / "pipeline.toml").write_text(events.toml())
    events.arrive(1, 2)

    def flow(*words: str) -> tuple[int, str, str]:
        return here(capsys, *words, "--run-log", "runs.db")

    assert flow("consume", "--once")[0] == 0
    code, out, _ = flow("doctor", "checkpoint", "events", "--json")
    assert (code, {item["status"] for item in json.loads(out)["findings"]}) == (0, {"ok"})
    log = tmp_path / "checkpoints" / "events" / "spark" / "commits"
    last = max(int(item.name) for item in log.iterdir() if item.name.isdigit())
    (log / str(last)).write_text("")
    code, out, err = flow("doctor", "checkpoint", "events")
    assert (code, "damaged" in out, "next: flow stream repair events" in out) == (1, True, True), err
    code, out, _ = flow("stream", "repair", "events")
    assert (code, "done: remove the half-written commit" in out) == (0, True)
    code, out, err = flow("stream", "repair", "events", "--to-batch", "9")
    assert (code, "has no batch 9" in err) == (3, True)
    code, out, err = flow("stream", "rewind", "events", "--to", "earliest", "--preview")
    assert (code, out.split()[:4]) == (0, ["PART", "FROM", "TO", "ROWS"])
    assert "gets the rows twice" in err
    code, out, err = flow("stream", "rewind", "events", "--to", "earliest")
    assert (code, "add --yes" in err) == (3, True)
    code, out, err = flow("stream", "rewind", "events", "--to", "yesterday")
    assert (code, "is no place to rewind to" in err) == (3, True)
    code, out, _ = flow("stream", "rewind", "events", "--to", "earliest", "--yes", "--json")
    assert (code, json.loads(out)["done"]) == (0, True)
    assert flow("consume", "--once")[0] == 0
    assert len(rows(tmp_path, "SELECT * FROM raw_events")) == 4
    (told,) = json.loads(flow("stream", "status", "--json")[1])
    assert (told["name"], told["status"], told["running"], told["rows"]) == ("events", "succeeded", False, 2)
    assert "rewind, succeeded" in flow("stream", "status", "events")[1]
    assert flow("stream", "stop", "events")[:2] == (0, "")
    kinds = [(run["kind"], run["status"]) for run in json.loads(flow("runs", "list", "--json")[1])["runs"]]
    assert kinds == [
        ("streaming", "succeeded"),
        ("replay", "succeeded"),
        ("replay", "succeeded"),
        ("streaming", "succeeded"),
    ]
