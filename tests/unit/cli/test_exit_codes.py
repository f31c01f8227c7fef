"""Every documented exit code, reached by a real command."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ematix_flow.foundation import exit_codes
from ematix_flow.foundation.exit_codes import MEANINGS
from ematix_flow.run_log import Action, SqliteRunLog
from ematix_flow.run_log.worker import this_worker

PIPELINE = (
    '\n@ematix.pipeline(target=People, target_connection="shop", mode="{mode}"{more})\ndef {name}(conn):\n    {body}\n'
)


def pipeline(name: str, body: str, *, mode: str = "append", more: str = "") -> str:
    return PIPELINE.format(name=name, body=body, mode=mode, more=more)


def history(project: Path) -> SqliteRunLog:
    return SqliteRunLog(project.parent / "home" / ".ematix-flow" / "run_log.db")


def test_help_explains_every_code_and_is_no_failure(flow: Any, project: Path) -> None:
    answer = flow("--help")
    assert answer.code == 0
    for code, meaning in MEANINGS.items():
        assert f"{code} " in answer.out
        assert meaning in answer.out
    assert set(MEANINGS) == {value for value in vars(exit_codes).values() if isinstance(value, int)}


def test_0_when_all_goes_well_and_the_second_run_says_that_nothing_changed(flow: Any, shop: Path) -> None:
    first, second = flow("run", "--all"), flow("run", "--all")
    assert (first.code, second.code) == (0, 0)
    assert "200 rows in" in first.out
    assert "200 inserted" in first.out
    assert "(inside SQLite)" in first.out
    assert "0 inserted, 0 updated, 200 unchanged" in second.out
    assert "2 ok" in second.err


def test_1_when_a_run_fails_for_any_other_reason(flow: Any, shop: Path, declare: Callable[[str], None]) -> None:
    declare(pipeline("unlucky", 'raise LookupError("no such luck")'))
    answer = flow("run", "unlucky")
    assert answer.code == 1
    assert "✗ unlucky failed while planning: unlucky raised LookupError: no such luck" in answer.err
    assert 'raise LookupError("no such luck")' in answer.err
    assert "nothing was loaded · run " in answer.err
    assert answer.out == ""


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("nonsense",),
        ("run",),
        ("run", "--all", "people"),
        ("run", "nobody"),
        ("preview",),
        ("transform", "run", "nobody"),
    ],
)
def test_2_when_the_command_line_is_wrong(flow: Any, shop: Path, words: tuple[str, ...]) -> None:
    answer = flow(*words)
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err


@pytest.mark.parametrize("option", [("--accept-deletes", "5"), ("--force-path", "same_db")], ids=lambda words: words[0])
def test_2_when_an_option_cannot_change_a_run_that_was_requested(
    flow: Any, shop: Path, option: tuple[str, str]
) -> None:
    with closing(history(shop)) as log:
        asked = log.enqueue(Action("run", "people"))
    answer = flow("run", "people", "--run-id", asked, *option)
    assert answer.code == 2
    assert f"{option[0]} does not go with --run-id" in answer.err
    with closing(history(shop)) as log:
        assert [record.run_id for record in log.pending_actions()] == [asked]


def test_3_when_the_source_names_a_column_that_is_not_there(
    flow: Any, shop: Path, declare: Callable[[str], None]
) -> None:
    declare(pipeline("typo", 'return "SELECT id, nam FROM raw_people"'))
    answer = flow("run", "typo")
    lines = answer.err.splitlines()
    assert answer.code == 3
    assert any(line.startswith("✗ typo failed while planning:") and "nam" in line for line in lines)
    assert any("pipelines.py:" in line and "SELECT id, nam FROM raw_people" in line for line in lines)
    assert any("attempt 1 of 1 (not retried: it will not heal by itself)" in line for line in lines)
    assert "next: flow validate typo" in lines


def test_3_when_validation_finds_something_and_the_others_are_ok(
    flow: Any, shop: Path, declare: Callable[[str], None]
) -> None:
    declare(pipeline("typo", 'return "SELEC id FROM raw_people"'))
    answer = flow("validate", "people", "typo")
    assert answer.code == 3
    assert answer.out == "people: ok\n"
    assert "✗ typo:" in answer.err


def test_4_when_a_row_breaks_the_promise_of_the_table(flow: Any, shop: Path, declare: Callable[[str], None]) -> None:
    declare(pipeline("twins", 'return "SELECT 7 AS id, name FROM raw_people"'))
    answer = flow("run", "twins")
    assert answer.code == 4
    assert "nothing was loaded" in answer.err
    assert "next: flow preview twins --rows 5" in answer.err


def test_5_when_a_connection_is_unknown(flow: Any, shop: Path, declare: Callable[[str], None]) -> None:
    declare(
        '\n@ematix.pipeline(target=People, target_connection="shp", mode="append")\ndef lost(conn):\n    return "x"\n'
    )
    answer = flow("run", "lost")
    assert answer.code == 5
    assert "did you mean 'shop'?" in answer.err
    assert "next: flow connections list" in answer.err


def test_5_when_no_server_answers_and_the_password_is_not_shown(
    flow: Any, shop: Path, declare: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_DSN_AWAY", "postgres://ana:hunter22-secret@127.0.0.1:9/shop?connect_timeout=2")
    declare('\n@ematix.pipeline(target=People, target_connection="away", mode="append")\ndef far(conn):\n'
            '    return "SELECT 1 AS id, \'a\' AS name"\n')  # fmt: skip
    for words in (
        ("run", "far"),
        ("run", "far", "--verbose"),
        ("connections", "check", "away"),
        ("connections", "list"),
    ):
        answer = flow(*words)
        assert answer.code == (0 if words[-1] == "list" else 5)
        assert "hunter22-secret" not in answer.out + answer.err
    assert "next: flow connections check away" in flow("run", "far").err


def test_5_when_a_variable_or_a_file_is_wrong(flow: Any, project: Path) -> None:
    (project / ".ematix-flow.toml").write_text('[connections.wh]\nurl = "postgres://ana:${NOT_SET_ANYWHERE}@db/shop"\n')
    answer = flow("connections", "check", "wh")
    assert answer.code == 5
    assert "NOT_SET_ANYWHERE" in answer.err
    (project / ".ematix-flow.toml").write_text("[connections.wh\n")
    answer = flow("connections", "list")
    assert answer.code == 5
    assert ".ematix-flow.toml:1" in answer.err


def test_6_when_another_run_of_the_pipeline_is_alive(flow: Any, shop: Path) -> None:
    with closing(history(shop)) as log:
        log.claim("people", this_worker(), 600)
        answer = flow("run", "people")
    assert answer.code == 6
    assert "already running" in answer.err
    assert "next: flow runs list --pipeline people" in answer.err


def test_a_lease_of_a_dead_process_stops_no_run(flow: Any, shop: Path) -> None:
    host, _, started = this_worker().rsplit(":", 2)
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    with closing(history(shop)) as log:
        log.claim("people", f"{host}:{child.pid}:{started}", 600)
    assert flow("run", "people").code == 0


def test_7_when_the_load_would_delete_too_much_and_0_when_that_is_accepted(
    flow: Any, shop: Path, declare: Callable[[str], None], fill_shop: Callable[[int], None]
) -> None:
    declare(
        pipeline("mirror", 'return "SELECT id, name FROM raw_people"', mode="merge", more=', handle_deletes="hard"')
    )
    assert flow("run", "mirror").code == 0
    fill_shop(10)
    answer = flow("run", "mirror")
    assert answer.code == 7
    assert "next: flow run mirror --accept-deletes 190" in answer.err
    accepted = flow("run", "mirror", "--accept-deletes", "190")
    assert accepted.code == 0
    assert "190 deleted" in accepted.out


def test_8_when_some_succeed_and_what_depends_on_a_failure_is_skipped_with_its_reason(
    flow: Any, shop: Path, declare: Callable[[str], None]
) -> None:
    declare(pipeline("broken", 'return "SELECT nothing"'))
    declare(pipeline("after", 'return "SELECT 1"', more=', depends_on=["broken"]'))
    declare(pipeline("later", 'return "SELECT 1"', more=', depends_on=["after"]'))
    answer = flow("run", "--all")
    assert answer.code == 8
    assert "people" in answer.out
    assert "skipped: broken failed" in answer.err
    assert "skipped: after was skipped" in answer.err
    assert "2 ok · 1 failed · 2 skipped" in answer.err


def test_the_first_failures_code_when_none_succeeds(flow: Any, shop: Path, declare: Callable[[str], None]) -> None:
    declare(pipeline("broken", 'return "SELECT nothing"'))
    declare(pipeline("unlucky", 'raise LookupError("no")'))
    assert flow("run", "unlucky", "broken").code == 1
    assert flow("run", "broken", "unlucky").code == 3


def test_130_when_it_is_interrupted_and_it_says_what_it_left_behind(shop: Path, declare: Callable[[str], None]) -> None:
    declare(pipeline("slow", "open('begun', 'w').close(); import time; time.sleep(60)"))
    child = subprocess.Popen(
        [sys.executable, "-m", "ematix_flow.cli", "run", "slow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not (shop / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "✗ slow was interrupted while planning: nothing was loaded" in err
    assert "Traceback" not in err
    assert out == ""
    with closing(history(shop)) as log:
        (record,), _ = log.list_runs(pipeline="slow")
        assert record.status == "failed"
        assert log.claim("slow", this_worker(), 60).acquired
