"""`flow runs show` explains a run's time, `flow runs compare` what changed: figures in, sentences out."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from ematix_flow.run_log import RunRecord, SqliteRunLog

BEGUN = datetime(2026, 1, 31, 12, 0, tzinfo=timezone.utc)
STARTED = {"kind": "local", "engine": "local[*]", "how": "started", "seconds": 3.1}
ARROW = {"path": "cross_db", "path_reason": "source and target are different systems", "lane": "arrow",
         "lane_reason": "read, cast and write row by row"}  # fmt: skip


def target(**more: Any) -> dict[str, Any]:
    return {"table": "raw.orders", "connection": "house", "mode": "merge", "target_kind": "duckdb", "rows_read": 40_000,
            "rows_inserted": 40_000, "bytes_staged": 8_000_000, "bytes_of": "arrow", "load_seconds": 2.0, **ARROW,
            **more}  # fmt: skip


def extras(steps: dict[str, float], **more: Any) -> dict[str, Any]:
    """What a run of this version leaves behind."""
    return {
        "targets": [target()],
        "steps": [{"step": step, "seconds": seconds} for step, seconds in steps.items()],
        "session": STARTED,
        "cpu_seconds": 5.0,
        "settings": {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"},
        "versions": {"ematix-flow": "0.3.0", "python": "3.11.2", "pyspark": "4.1.3"},
        "declaration": "5f2e9a7b1c3d",
        **more,
    }


QUICK = {"plan": 0.5, "start": 0.5, "ensure": 0.5, "stage": 2.0, "publish": 1.0, "settle": 0.5}


@pytest.fixture
def log(project: Path) -> Any:
    """Writes a run into the run log that the command reads by default."""

    def write(run_id: str, kept: dict[str, Any], *, minute: int = 0, seconds: float = 5.0, status: str = "succeeded",
              pipeline: str = "orders", **more: Any) -> None:  # fmt: skip
        started = BEGUN + timedelta(minutes=minute)
        ended = None if status == "running" else started + timedelta(seconds=seconds)
        with closing(SqliteRunLog(project.parent / "home" / ".ematix-flow" / "run_log.db")) as found:
            found.record_run_record(RunRecord(run_id, pipeline, status, started, ended, extras=kept, **more))

    return write


def shown_by(flow: Any, run: str, *options: str) -> dict[str, str]:
    """The lines of `flow runs show` by their label; lines without one belong to the label above."""
    answer = flow("runs", "show", run, *options)
    assert answer.code == 0, answer.err
    found: dict[str, str] = {}
    label = ""
    for line in answer.out.splitlines():
        label = line[:10].strip() or label
        found[label] = f"{found[label]}\n{line[10:]}" if label in found else line[10:]
    return found


def test_show_tells_steps_with_their_share_and_what_was_moved(flow: Any, log: Any) -> None:
    log("aaaa1111", extras(QUICK))
    shown = shown_by(flow, "aaaa")
    steps = [line.split() for line in shown["steps"].splitlines()]
    assert steps[3] == ["stage", "2.00", "s", "40", "%"]
    assert [line[0] for line in steps] == list(QUICK)
    assert shown["rows"] == "40,000 in, 20,000 rows/s while loading"
    assert shown["bytes"] == "8.0 MB as Arrow batches, 4.0 MB/s while loading"
    assert shown["cpu"] == "5.0 s: 1.0 cores on average"
    assert shown["engine"] == "local[*], started by this run"
    assert shown["versions"] == "ematix-flow 0.3.0, python 3.11.2, pyspark 4.1.3"
    assert shown["declared"] == "5f2e9a7b1c3d"
    assert "lane arrow (read, cast and write row by row)" in shown["target"]
    assert "path cross_db (source and target are different systems)" in shown["target"]
    assert shown["settings"].startswith("2 set, ")
    assert "spark.sql.shuffle.partitions = 2" in shown_by(flow, "aaaa", "--verbose")["settings"]


@pytest.mark.parametrize(
    ("steps", "more", "sentence"),
    [
        (
            {"plan": 0.5, "start": 3.1, "stage": 1.0, "publish": 0.4},
            {},
            "most of the time went into starting Spark: 62 %; EMATIX_FLOW_KEEP_WARM=1 leaves an engine running that later runs join",
        ),
        (
            {"plan": 0.5, "stage": 1.0, "publish": 8.5},
            {"session": None},
            "most of the time went into publishing (merge in DuckDB): 85 %",
        ),
        (
            {"plan": 1.0, "read": 2.0, "stage": 6.0, "publish": 1.0},
            {"targets": [target(lane="spark", lane_reason="pre-transforms run in Spark")]},
            ("most of the time went into reading and staging the rows: 80 %; "
            "the rows went through Spark's rows because pre-transforms run in Spark"),
        ),
        (
            {"plan": 1.0, "stage": 8.0, "publish": 1.0},
            {"cpu_seconds": 9.0},
            "most of the time went into reading and staging the rows: 80 %; 5,000 rows/s, 1.0 MB/s",
        ),
        (
            {"plan": 1.0, "stage": 8.0, "publish": 1.0},
            {"cpu_seconds": 2.0},
            ("most of the time went into reading and staging the rows: 80 %; 5,000 rows/s, 1.0 MB/s; "
            "this side used 0.2 of a core: it mostly waited, for the source, the target, the disk or its turn"),
        ),
        (
            {"plan": 1.0, "stage": 3.0, "publish": 2.0},
            {"cpu_seconds": 0.1, "session": None, "targets": [
                target(path="same_db", lane="database", lane_reason="no row leaves the database", bytes_staged=None)]},
            "most of the time went into reading and staging the rows: 50 %; 13,333 rows/s inside the database",
        ),
        (
            {"plan": 4.0, "stage": 3.5, "publish": 2.5},
            {},
            ("no step took half of the time: 40 % went into planning (the pipeline's function, the columns of the source), "
            "35 % into reading and staging the rows"),
        ),
    ],
)  # fmt: skip
def test_show_explains_where_the_time_went(
    flow: Any, log: Any, steps: dict[str, float], more: dict[str, Any], sentence: str
) -> None:
    log("aaaa1111", extras(steps, **more))
    assert shown_by(flow, "aaaa")["why"] == sentence
    assert flow("runs", "show", "aaaa", "--json").document["why"] == sentence


def test_a_failed_run_explains_the_time_until_it_failed(flow: Any, log: Any) -> None:
    kept = {name: value for name, value in extras({"plan": 0.2, "stage": 1.8}).items() if name != "targets"}
    log("aaaa1111", kept, status="failed", failed_step="stage", error_summary="no room")
    shown = shown_by(flow, "aaaa")
    assert shown["why"].startswith("until it failed, most of the time went into reading and staging the rows: 90 %")
    assert "rows" not in shown


def test_what_a_run_does_not_know_is_not_shown(flow: Any, log: Any) -> None:
    inside = target(path="same_db", lane="database", lane_reason="no row leaves the database", bytes_staged=None)
    log("aaaa1111", extras({"plan": 0.1, "stage": 0.1}, targets=[inside], cpu_seconds=None, session=None, settings={}))
    shown = shown_by(flow, "aaaa")
    assert not {"bytes", "cpu", "settings"} & set(shown)
    assert shown["engine"] == "none: no Spark was needed"


def test_bytes_of_several_targets_are_added_only_when_they_were_measured_alike(flow: Any, log: Any) -> None:
    log("aaaa1111", extras(QUICK, targets=[target(), target(table="raw.copy", bytes_staged=2_000_000)]))
    log("bbbb2222", extras(QUICK, targets=[target(), target(bytes_of="files", bytes_staged=1_000_000)]))
    assert shown_by(flow, "aaaa")["bytes"].startswith("10.0 MB as Arrow batches")
    assert "2.0 MB as Arrow batches, 20,000 rows/s, 1.0 MB/s" in shown_by(flow, "aaaa")["target"]
    assert "bytes" not in shown_by(flow, "bbbb")
    assert "1.0 MB in files" in shown_by(flow, "bbbb")["target"]


def test_a_warm_engine_is_named_with_its_process(flow: Any, log: Any) -> None:
    session = {"kind": "warm", "engine": "warm", "pid": 4711, "how": "joined", "seconds": 0.4}
    log("aaaa1111", extras({"start": 0.4, "stage": 0.2}, session=session))
    assert shown_by(flow, "aaaa")["engine"] == "engine 4711, kept for the next commands"
    assert shown_by(flow, "aaaa")["why"] == "most of the time went into joining the engine: 67 %"


@pytest.mark.parametrize(
    "kept",
    [
        {},
        {"targets": [{"table": "raw.orders", "connection": "house", "mode": "append", "rows_inserted": 12}]},
        {"steps": "many", "session": "some", "cpu_seconds": "few", "settings": [1], "versions": None, "targets": [3]},
        {"steps": [{"step": "stage"}, {"seconds": 3}, 4], "targets": [target(bytes_staged="x", rows_read=None)]},
    ],
)
def test_records_that_older_versions_wrote_are_shown_and_compared(flow: Any, log: Any, kept: dict[str, Any]) -> None:
    log("aaaa1111", kept)
    log("bbbb2222", extras(QUICK), minute=1, seconds=7.5)
    assert shown_by(flow, "aaaa")["took"] == "5.0 s"
    compared = flow("runs", "compare", "aaaa", "bbbb")
    assert compared.code == 0, compared.err
    assert compared.out.splitlines()[-1].startswith("bbbb2222 took 2.50 s longer than aaaa1111")


def compared(flow: Any, *runs: str) -> tuple[dict[str, list[str]], list[str]]:
    """The rows of the table by their first word, and the lines below it."""
    answer = flow("runs", "compare", *runs)
    assert answer.code == 0, answer.err
    lines = answer.out.splitlines()
    end = next(number for number, line in enumerate(lines) if line.startswith("the same: "))
    cells = [[cell for cell in line.split("  ") if cell.strip()] for line in lines[1:end]]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in cells}, lines[end:]


def test_compare_tells_what_changed_in_figures_and_words(flow: Any, log: Any) -> None:
    log("aaaa1111", extras(QUICK))
    slow = extras({**QUICK, "stage": 8.0}, cpu_seconds=20.0, declaration="000000000000",
                  targets=[target(rows_read=80_000, lane="spark", lane_reason="pre-transforms run in Spark")],
                  settings={"spark.sql.shuffle.partitions": "200", "spark.driver.memory": "1g"})  # fmt: skip
    log("bbbb2222", slow, minute=5, seconds=11.0)
    rows, below = compared(flow, "aaaa", "bbbb")
    assert rows["took"] == ["5.00 s", "11.0 s", "+6.00 s (+120 %)"]
    assert rows["stage"] == ["2.00 s", "8.00 s", "+6.00 s (+300 %)"]
    assert rows["publish"] == ["1.00 s", "1.00 s", "="]
    assert rows["rows"] == ["40,000", "80,000", "+40,000 (+100 %)"]
    assert rows["rows/s"] == ["20,000", "10,000", "-10,000 (-50 %)"]
    assert rows["bytes/s"] == ["4.0 MB/s", "1.0 MB/s", "-3.0 MB/s (-75 %)"]
    assert rows["cpu"] == ["5.00 s", "20.0 s", "+15.0 s (+300 %)"]
    assert rows["lane"][:2] == ["arrow (read, cast and write row by row)", "spark (pre-transforms run in Spark)"]
    assert rows["declared"] == ["5f2e9a7b1c3d", "000000000000", "changed"]
    assert rows["spark.sql.shuffle.partitions"] == ["2", "200", "changed"]
    assert not {"engine", "python", "spark.driver.memory"} & set(rows)
    assert below[0] == "the same: pipeline, status, path, bytes are, engine, ematix-flow, python, pyspark"
    assert below[1] == (
        "bbbb2222 took 6.00 s longer than aaaa1111, mainly in stage (+6.00 s); 2.0 times the rows; "
        "changed: lane, declared, spark.sql.shuffle.partitions"
    )


def test_compare_speaks_json(flow: Any, log: Any) -> None:
    log("aaaa1111", extras(QUICK))
    log("bbbb2222", extras(QUICK, session=None), minute=5, seconds=4.0)
    document = flow("runs", "compare", "aaaa", "bbbb", "--json").document
    assert (document["before"], document["after"]) == ("aaaa1111", "bbbb2222")
    assert {"what": "took", "unit": "s", "before": 5.0, "after": 4.0, "change": -1.0} in document["figures"]
    (engine,) = [word for word in document["words"] if word["what"] == "engine"]
    assert (engine["after"], engine["changed"]) == ("none: no Spark was needed", True)
    assert document["settings"] == []
    assert document["summary"].startswith("bbbb2222 took 1.00 s less than aaaa1111")


def test_one_run_is_compared_with_the_last_successful_one_of_its_pipeline_before_it(flow: Any, log: Any) -> None:
    for number in range(60):  # more than are looked at once
        log(f"later{number:03}", {}, minute=10 + number)
    log("first", {})
    log("failed", {}, minute=1, status="failed")
    log("other", {}, minute=2, pipeline="people")
    log("mine", {}, minute=3, seconds=5.01)
    document = flow("runs", "compare", "mine", "--json").document
    assert (document["before"], document["after"]) == ("first", "mine")
    assert document["summary"] == "both took about as long: 5.00 s and 5.01 s"
    alone = flow("runs", "compare", "first")
    assert alone.code == 2
    assert "orders has no successful run before first" in alone.err


def test_an_unknown_run_is_a_clear_error(flow: Any, log: Any) -> None:
    log("aaaa1111", {})
    for words in (("aaaa", "zzzz"), ("zzzz", "aaaa"), ("zzzz",)):
        answer = flow("runs", "compare", *words)
        assert answer.code == 2
        assert "no run is called 'zzzz'" in answer.err
        assert "flow runs list" in answer.err
    assert flow("runs", "compare").code == 2


def test_a_run_that_goes_on_has_no_duration_to_compare(flow: Any, log: Any) -> None:
    log("aaaa1111", extras(QUICK))
    log("bbbb2222", {}, minute=5, status="running")
    answer = flow("runs", "compare", "aaaa", "bbbb")
    assert answer.out.splitlines()[-1].startswith("bbbb2222 has not finished")


def test_bytes_that_were_measured_differently_are_not_compared(flow: Any, log: Any) -> None:
    log("aaaa1111", extras(QUICK))
    log("bbbb2222", extras(QUICK, targets=[target(bytes_of="files", bytes_staged=1000)]), minute=5)
    rows, _ = compared(flow, "aaaa", "bbbb")
    assert not {"bytes", "bytes/s"} & set(rows)
    assert rows["bytes are"] == ["arrow", "files", "changed"]


def test_no_secret_of_a_setting_is_shown(flow: Any, log: Any) -> None:
    log("aaaa1111", extras(QUICK, settings={"spark.x": "jdbc:postgresql://ana:hunter22@db/shop"}))
    log("bbbb2222", extras(QUICK, settings={"spark.x": "jdbc:postgresql://ana:hunter33@db/other"}), minute=5)
    shown = flow("runs", "compare", "aaaa", "bbbb").out + flow("runs", "show", "aaaa", "--verbose").out
    assert "spark.x" in shown
    assert "hunter" not in shown
