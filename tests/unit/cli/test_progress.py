"""Progress: a live line on a terminal, plain lines in a log, nothing when it is not wanted."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ematix_flow.cli.render.progress import PlainProgress, Progress
from ematix_flow.engine.batch.result import ProgressEvent


def test_a_line_tells_step_rows_pace_and_an_estimate() -> None:
    progress = Progress("load_orders")
    assert progress.line() == "load_orders: planning, 0 s"
    progress(ProgressEvent("load_orders", "read", "csv", rows=0, total=4000))
    time.sleep(1.2)
    progress(ProgressEvent("load_orders", "read", "csv", rows=1000, total=4000))
    told = re.fullmatch(
        r"load_orders: reading csv, 1,000 rows, (\d+) rows/s, 1 s, of about 4,000, about (\d) s left", progress.line()
    )
    assert told is not None
    assert 400 < int(told[1]) < 850
    assert 3 <= int(told[2]) <= 7
    assert progress.step == "read"


def test_a_line_tells_megabytes_a_second_when_bytes_are_counted() -> None:
    progress = Progress("load_orders")
    progress(ProgressEvent("load_orders", "stage", "raw.orders"))
    time.sleep(1.1)
    progress(ProgressEvent("load_orders", "stage", "raw.orders", rows=1000, bytes_moved=20_000_000))
    told = re.fullmatch(
        r"load_orders: loading raw.orders, 1,000 rows, \d+ rows/s, (\d+\.\d) MB/s, 1 s", progress.line()
    )
    assert told is not None
    assert 12 < float(told[1]) < 19


def test_the_pace_starts_when_spark_has_started() -> None:
    progress = Progress("load_orders")
    progress(ProgressEvent("load_orders", "stage", "raw.orders"))
    progress(ProgressEvent("load_orders", "start"))
    assert progress.line() == "load_orders: starting Spark, 0 s"
    time.sleep(1.1)
    progress(ProgressEvent("load_orders", "stage", "raw.orders"))
    progress(ProgressEvent("load_orders", "stage", "raw.orders", rows=10, bytes_moved=80))
    assert progress.line() == "load_orders: loading raw.orders, 10 rows, 1 s"


def test_no_pace_and_no_estimate_before_there_is_something_to_measure() -> None:
    progress = Progress("load_orders")
    progress(ProgressEvent("load_orders", "stage", "analytics.orders", rows=5, total=4000))
    assert progress.line() == "load_orders: loading analytics.orders, 5 rows, 0 s, of about 4,000"


def test_a_log_gets_a_plain_line_now_and_then(capfd: pytest.CaptureFixture[str]) -> None:
    with PlainProgress("load_orders", every=0.05) as progress:
        progress(ProgressEvent("load_orders", "publish", "orders#1 / 42", rows=4000))
        time.sleep(0.3)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) >= 2
    assert set(lines) == {"load_orders: publishing orders#1 / 42, 4,000 rows, 0 s"}


def test_a_quick_run_leaves_no_line_in_a_log(capfd: pytest.CaptureFixture[str]) -> None:
    with PlainProgress("load_orders") as progress:
        progress(ProgressEvent("load_orders", "read"))
    assert capfd.readouterr().err == ""


@pytest.fixture
def on_terminal(shop: Path) -> Callable[..., tuple[int, str]]:
    """The command as a person sees it: both streams are one terminal."""

    def call(*words: str, **environment: str) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        surroundings = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_COLOR")}
        child = subprocess.Popen(
            [sys.executable, "-m", "ematix_flow.cli", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=shop,
            env={**surroundings, "TERM": "xterm-256color", "COLUMNS": "160", **environment},
        )
        os.close(theirs)
        seen = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the terminal is gone with its last user
                break
            if not part:
                break
            seen += part
        os.close(ours)
        return child.wait(timeout=60), seen.decode()

    return call


def test_a_terminal_shows_a_live_line_and_then_the_result(on_terminal: Callable[..., tuple[int, str]]) -> None:
    code, seen = on_terminal("run", "people")
    assert code == 0
    assert re.search(r"\x1b\[\?25l.*people: ", seen, re.DOTALL)
    assert "200 inserted" in seen
    assert "\x1b[?25h" in seen  # the cursor is back


def test_no_progress_and_continuous_integration_show_none(on_terminal: Callable[..., tuple[int, str]]) -> None:
    for words, environment in ((("run", "people", "--no-progress"), {}), (("run", "people"), {"CI": "true"})):
        code, seen = on_terminal(*words, **environment)
        assert code == 0
        assert "\x1b" not in seen
        assert "200 rows in" in seen


def test_colours_are_for_terminals_that_want_them(on_terminal: Callable[..., tuple[int, str]]) -> None:
    assert "\x1b[31m✗" in on_terminal("run", "nobody")[1]
    assert "\x1b[" not in on_terminal("run", "nobody", "--no-color")[1]
    assert "\x1b[" not in on_terminal("run", "nobody", NO_COLOR="1")[1]


def test_a_pipe_gets_no_terminal_codes(shop: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "ematix_flow.cli", "run", "people"], capture_output=True, cwd=shop)
    assert done.returncode == 0
    assert b"\x1b" not in done.stdout + done.stderr
