"""The lease of a run: held by one, and no reason to stop working when the run log breaks."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ematix_flow.foundation.errors import LeaseHeld
from ematix_flow.run_log import InMemoryRunLog, SqliteRunLog, lease


def broken(path: Path, log: SqliteRunLog) -> SqliteRunLog:
    log.close()
    for file in path.parent.iterdir():
        file.write_bytes(b"scribble" * 1000)
    return log


def test_a_second_run_gets_an_error_that_names_the_running_one() -> None:
    log = InMemoryRunLog()
    with (
        lease.hold_lease(log, "orders"),
        pytest.raises(LeaseHeld, match="already running"),
        lease.hold_lease(log, "orders"),
    ):
        pytest.fail("two runs hold one lease")
    with lease.hold_lease(log, "orders"):
        assert not log.claim("orders", "elsewhere:1:1", 60).acquired


def test_a_run_log_that_cannot_be_asked_is_a_warning_and_the_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run_log.db"
    done = []
    with caplog.at_level(logging.WARNING), lease.hold_lease(broken(path, SqliteRunLog(path)), "orders"):
        done.append("work")
    assert done == ["work"]
    assert "continuing without history" in caplog.text


def test_a_run_log_that_breaks_meanwhile_takes_nothing_from_a_run_that_went_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run_log.db"
    log = SqliteRunLog(path)
    with caplog.at_level(logging.WARNING), lease.hold_lease(log, "orders"):
        broken(path, log)
    assert "run log" in caplog.text
