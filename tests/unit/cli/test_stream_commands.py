"""`flow stream`, `flow dlq` and `flow doctor checkpoint` where neither Spark nor a broker is needed."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from ematix_flow.run_log.records import RunRecord
from ematix_flow.run_log.sqlite import SqliteRunLog
from ematix_flow.run_log.worker import this_worker

STREAMS = """
from ematix_flow import ematix


@ematix.connection
class incoming:
    kind = "object_store_local"
    path = "incoming"
    format = "json_lines"


@ematix.connection
class warehouse:
    kind = "sqlite"
    path = "shop.db"


@ematix.streaming_pipeline(source=incoming, source_query="events", target=warehouse, target_table=("main", "events"),
                           transform_on_error="dlq", checkpoint="kept/events")
def events():
    pass
"""
BEGAN = datetime(2026, 1, 31, 10, 0, tzinfo=timezone.utc)


@pytest.fixture
def streams(project: Path) -> Path:
    """A project with one stream that has never run."""
    (project / "pipelines.py").write_text(STREAMS)
    (project / "incoming" / "events").mkdir(parents=True)
    return project


def record(project: Path, **fields: Any) -> None:
    """What a stream says of itself in the run log."""
    log = SqliteRunLog(str(project / "runs.db"))
    extras = {
        "rows_consumed_total": 1234.0, "rows_per_second": 56.7, "batches_total": 5.0, "batch_duration_seconds": 0.81,
        "dlq_writes_total": 3.0, "targets_behind": 2.0, "restarts_total": 1.0, "worker": this_worker(),
        "lag": {"events-0": {"rows": 40, "seconds": 75.0}, "events-1": {"rows": 2}}, "snapshot_at": "2026-01-31T10:05:00+00:00",
        **fields.pop("extras", {}),
    }  # fmt: skip
    given = {
        "run_id": "events-stream-1",
        "pipeline": "events",
        "status": "running",
        "started_at": BEGAN,
        "kind": "streaming",
    }
    log.record_run_record(RunRecord(**{**given, **fields}, extras=extras))
    log.close()


def status(flow: Any, *words: str) -> Any:
    return flow("stream", "status", *words, "--run-log", "runs.db")


def test_a_running_stream_is_reported_with_its_figures(flow: Any, streams: Path) -> None:
    record(streams)
    answer = status(flow)
    assert answer.code == 0
    header, line = answer.out.splitlines()
    assert header.split()[:3] == ["STREAM", "STATUS", "SINCE"]
    for part in ("events", "running", "1,234", "57", "0.8 s", "42 rows, 0:01:15"):
        assert part in line
    (found,) = status(flow, "--json").document
    assert (found["running"], found["lag_rows"], found["dead_letters"], found["targets_behind"], found["restarts"]) == (
        True, 42, 3, 2, 1,
    )  # fmt: skip
    shown = status(flow, "events").out
    assert "lag       events-0: 40 rows, 0:01:15" in shown
    assert "flow dlq list events" in shown
    assert status(flow, "events", "--json").document["name"] == "events"


def test_a_stream_whose_process_is_gone_does_not_run(flow: Any, streams: Path) -> None:
    host, pid, _ = this_worker().split(":")
    record(streams, extras={"worker": f"{host}:{pid}:1"})
    assert status(flow, "--json").document[0]["status"] == "died"
    assert "its process ended without a word" in status(flow, "events").out
    answer = flow("stream", "stop", "events", "--run-log", "runs.db")
    assert (answer.code, answer.err) == (0, "events does not run\n")


def test_declared_streams_that_never_ran_are_listed_too(flow: Any, streams: Path) -> None:
    assert status(flow, "--json").document[0]["status"] == "never"
    assert "never ran" in status(flow).out


def test_the_streams_of_a_module_are_listed_alone(flow: Any, streams: Path) -> None:
    record(streams, pipeline="another")
    assert [item["name"] for item in status(flow, "--module", "pipelines", "--json").document] == ["events"]


def test_without_any_stream_the_list_is_empty(flow: Any, project: Path) -> None:
    answer = status(flow)
    assert (answer.code, answer.out) == (0, "")
    assert "no streams in" in answer.err
    assert status(flow, "--json").document == []
    assert not (project / "runs.db").exists()


def test_a_stop_asks_the_process_and_says_when_it_waits_in_vain(
    flow: Any, streams: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(streams)
    asked: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: asked.append(number))
    answer = flow("stream", "stop", "events", "--timeout", "0", "--run-log", "runs.db")
    assert answer.code == 1
    assert "still runs after 0 s" in answer.err
    assert 15 in asked  # and 0 to see whether it is still there


def test_a_place_that_is_none_and_a_stream_that_is_none_are_refused(flow: Any, streams: Path) -> None:
    words = ("--run-log", "runs.db")
    assert flow("stream", "rewind", "events", "--to", "yesterday", *words).code == 3
    answer = flow("stream", "rewind", "event", "--to", "earliest", *words)
    assert (answer.code, "did you mean 'events'?" in answer.err) == (2, True)
    assert flow("stream", "rewind", "events", *words).code == 2


def test_a_stream_that_never_ran_can_be_given_a_start(flow: Any, streams: Path) -> None:
    (streams / "incoming" / "events" / "a.jsonl").write_text('{"id": 1}\n')
    words = ("stream", "rewind", "events", "--to", "latest", "--run-log", "runs.db")
    previewed = flow(*words, "--preview", "--json").document
    assert (previewed["done"], previewed["pipeline"]) == (False, "events")
    assert not (streams / "kept").exists()
    assert flow(*words, "--yes").code == 0
    note = json.loads((streams / "kept" / "events" / "flow.json").read_text())
    assert "since" in json.loads(note["start"])
    assert "aside" not in note


def test_a_checkpoint_is_looked_at_without_spark(flow: Any, streams: Path) -> None:
    words = ("doctor", "checkpoint", "events", "--run-log", "runs.db")
    answer = flow(*words)
    assert (answer.code, "has never run" in answer.out) == (0, True)
    checkpoint(streams, offsets=(0, 1), commits=(0,))
    answer = flow(*words, "--json")
    found = {item["about"]: item for item in answer.document["findings"]}
    assert (answer.code, found["order"]["status"], found["generation"]["status"]) == (0, "ok", "ok")
    checkpoint(streams, offsets=(0, 1, 2, 3), commits=(0,))
    answer = flow(*words)
    assert answer.code == 1
    assert "3 batches are planned and not committed" in answer.out
    assert "next: begin a new checkpoint" in answer.out


def test_a_repair_does_what_is_safe_and_asks_for_the_rest(flow: Any, streams: Path) -> None:
    checkpoint(streams, offsets=(0, 1), commits=(0, 1))
    home = streams / "kept" / "events"
    (home / "spark" / "commits" / "1").write_text("")
    (home / "spark" / "offsets" / ".2.abc.tmp").write_text("v")
    (home / "schema.json").write_text("{")
    words = ("stream", "repair", "events", "--run-log", "runs.db")
    answer = flow(*words)
    assert answer.code == 1  # the schema still cannot be read
    assert answer.out.count("done: ") == 2
    assert "waits for --yes: put schema.json aside" in answer.out
    answer = flow(*words, "--yes", "--json")
    assert (answer.code, len(answer.document["done"]), answer.document["waiting"]) == (0, 1, [])
    assert (home / "schema.json.damaged").read_text() == "{"
    assert "there is nothing to repair" in flow(*words).err


def checkpoint(project: Path, *, offsets: tuple[int, ...], commits: tuple[int, ...]) -> None:
    """What Spark would have left."""
    home = project / "kept" / "events"
    for log, numbers, lines in (("offsets", offsets, 'v1\n{}\n{"batch": 1}'), ("commits", commits, "v1\n{}")):
        folder = home / "spark" / log
        folder.mkdir(parents=True, exist_ok=True)
        for number in numbers:
            (folder / str(number)).write_text(lines)
    (home / "flow.json").write_text('{"generation": "abc"}')


# Dead letters ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def letters(streams: Path) -> Path:
    """Three dead letters, as a stream leaves them."""
    with closing(sqlite3.connect(streams / "shop.db")) as shop, shop:
        shop.execute(
            "CREATE TABLE ematix_flow_dlq_records (id TEXT PRIMARY KEY, pipeline_name TEXT, stage TEXT, error TEXT, target TEXT, "
            "source_id TEXT, position TEXT, message_key BLOB, headers TEXT, payload BLOB, payload_format TEXT, event_ts TEXT, "
            "failed_at TEXT, attempt INT, status TEXT, leased_until TEXT, pipeline_version TEXT, batch BIGINT)"
        )
        for number in range(3):
            at = (BEGAN + timedelta(days=number)).isoformat(sep=" ", timespec="microseconds")
            row = (
                f"{number}{'ab' * 31}f", "events", "decode", f"broken {number}\nand more", None, "events",
                json.dumps({"partition": 0, "offset": number}), b"k", '[{"key":"a","value":"AAE="}]', b'{"id": ', "json", None,
                at, 1, "pending", None, None, 4,
            )  # fmt: skip
            shop.execute(f"INSERT INTO ematix_flow_dlq_records VALUES ({', '.join('?' * len(row))})", row)
    return streams


def test_letters_are_listed_the_newest_first(flow: Any, letters: Path) -> None:
    answer = flow("dlq", "list", "events")
    assert answer.code == 0
    assert [line.split()[0] for line in answer.out.splitlines()[1:]] == ["2abababababa", "1abababababa", "0abababababa"]
    assert "broken 2" in answer.out
    assert "and more" not in answer.out
    assert "events: 3 pending" in answer.err
    record = flow("dlq", "list", "--json", "--limit", "1").document
    assert (record["depth"]["pending"], len(record["records"]), record["records"][0]["position"]) == (
        3, 1, {"partition": 0, "offset": 2},
    )  # fmt: skip


def test_a_letter_is_shown_with_what_is_in_it(flow: Any, letters: Path) -> None:
    answer = flow("dlq", "show", "1ab")
    assert answer.code == 0
    for part in (
        "stage      decode",
        "and more",
        "key        k",
        "headers    a=0x0001",
        'json       {"id": ',
        "events 0/1",
    ):
        assert part in answer.out
    assert flow("dlq", "show", "1ab", "--json").document["payload_preview"] == '{"id": '
    assert flow("dlq", "show", "77").code == 2


def test_letters_are_parked_and_purged(flow: Any, letters: Path) -> None:
    assert flow("dlq", "list", "--stream", "events", "--json").document["pipeline"] == "events"
    assert flow("dlq", "show", "events", "1ab", "--json").document == flow("dlq", "show", "1ab", "--json").document
    assert flow("dlq", "purge", "events", "--older-than", "36500d").out == "events  0 purged\n"
    assert flow("dlq", "purge", "nobody", "--all").code == 2
    assert flow("dlq", "park", "events", "2ab", "--json").document == {"pipeline": "events", "parked": 1}
    assert flow("dlq", "list", "--status", "parked", "--json").document["records"][0]["id"].startswith("2ab")
    assert flow("dlq", "purge", "--older-than", "36500d").out == "events  0 purged\n"
    assert flow("dlq", "purge", "0ab").out == "events  1 purged\n"
    assert flow("dlq", "purge", "--all", "--json").document["purged"] == 2
    assert "no dead letters" in flow("dlq", "list").err


def test_a_stream_whose_name_could_be_an_id_is_a_stream(flow: Any, letters: Path) -> None:
    module = letters / "pipelines.py"
    module.write_text(module.read_text() + '\n\nevents_2 = ematix.streaming_pipeline(source=incoming, source_query="feed", '
                      'target=warehouse, target_table=("main", "feed"), transform_on_error="dlq", name="feed")(lambda: None)\n')  # fmt: skip
    with closing(sqlite3.connect(letters / "shop.db")) as shop, shop:
        shop.execute("UPDATE ematix_flow_dlq_records SET pipeline_name = 'feed' WHERE id LIKE '0ab%'")
    assert flow("dlq", "show", "feed", "0ab", "--json").document["id"].startswith("0ab")
    assert flow("dlq", "show", "0ab", "--stream", "feed", "--json").document["id"].startswith("0ab")
    assert flow("dlq", "park", "feed", "0ab", "--json").document == {"pipeline": "feed", "parked": 1}
    assert flow("dlq", "show", "feed").code == 2
    answer = flow("dlq", "purge", "feed", "--all")
    assert (answer.code, answer.out) == (0, "feed  1 purged\n")
    assert flow("dlq", "purge", "events", "--all").out == "events  2 purged\n"


@pytest.mark.parametrize(
    "words",
    [("replay",), ("park",), ("purge",), ("replay", "0ab", "--all"), ("purge", "--all", "--older-than", "1d"),
     ("purge", "--older-than", "soon")],
    ids=" ".join,
)  # fmt: skip
def test_the_letters_must_be_selected_exactly_once(flow: Any, letters: Path, words: tuple[str, ...]) -> None:
    assert flow("dlq", *words).code == 2


def test_a_replay_of_nothing_needs_no_spark(flow: Any, letters: Path) -> None:
    flow("dlq", "purge", "--all")
    answer = flow("dlq", "replay", "--all", "--run-log", "runs.db")
    assert (answer.code, answer.out) == (0, "events  0 taken, 0 succeeded\n")
    assert flow("dlq", "replay", "77", "--run-log", "runs.db").code == 2
