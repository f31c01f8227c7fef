"""Operating a stream: how it stands, stopping it, and every command in its own words."""

from __future__ import annotations

import json
import signal
import warnings
from pathlib import Path

import pytest

from ematix_flow.engine.streams.standing import standing
from ematix_flow.orchestrate.stream_wishes import stop
from ematix_flow.runlog import SqliteRunLog
from ematix_flow.runlog.agenda import Action
from tests.full import when_full
from tests.streams.operated import Events, ended, eventually, flow, here, rows, run

pytestmark = pytest.mark.usefixtures("homes", "every_jar")


def test_a_stream_that_was_drained_is_told_with_its_figures(events: Events, run_log: SqliteRunLog) -> None:
    spec = events.spec()
    assert standing(run_log, "events").status == "never"
    events.arrive(1, 2, 3)
    run(spec, run_log)
    told = standing(run_log, "events")
    assert (told.status, told.is_running, told.restarts, told.targets_behind) == ("succeeded", False, 0, 0)
    assert (told.rows, told.batches) == (3, 1)
    assert told.since is not None
    assert told.to_dict()["running"] is False


@pytest.mark.parametrize(
    "how", ["by a signal", pytest.param("by the run log", marks=when_full("its twin stops by a signal"))]
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
        told = standing(run_log, "events")
        assert told.is_running
        if how == "by a signal":
            stopped = stop(run_log, "events", seconds=60)
            assert stopped.standing is not None
            assert stopped.standing.status == "succeeded"
        else:
            run_log.enqueue(Action("cancel", "events", told.run_id, by="somebody elsewhere"))
        code, _, err = ended(process)
        assert code == 0, err
        assert standing(run_log, "events").status == "succeeded"
        assert run_log.pending_actions() == []
        assert stop(run_log, "events").standing is None
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()


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
