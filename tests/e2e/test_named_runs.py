"""A pipeline that another one names in transforms_post: a run like any other."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ematix_flow.cli import main
from ematix_flow.declare import registry
from ematix_flow.declare.connections import clear_registry
from ematix_flow.run_log.sqlite import SqliteRunLog

PIPELINES = """
from ematix_flow import Annotated, BigInt, SQLiteConnection, ematix, pk

shop = SQLiteConnection("shop", path="shop.db")


@ematix.table(schema="main")
class Copied:
    n: Annotated[BigInt, pk()]


@ematix.pipeline(target=Copied, target_connection=shop, mode="merge", transforms_post=[ematix.transform_ref("mart")])
def copied():
    return "SELECT n FROM numbers"


@ematix.pipeline(target=Copied, target_connection=shop, mode="merge", window_start="2026-01-01")
def mart(start, end):
    {body}
"""


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    for name, place in {
        "EMATIX_FLOW_RUN_LOG_PATH": "runs.db", "EMATIX_FLOW_LOGS_DIR": "logs", "EMATIX_FLOW_STAGE_DIR": "stage",
        "HOME": "home",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, str(tmp_path / place))
    registry.clear()
    with closing(sqlite3.connect("shop.db")) as shop, shop:
        shop.execute("CREATE TABLE numbers (n INTEGER)")
        shop.executemany("INSERT INTO numbers VALUES (?)", [(1,), (2,)])
    yield
    registry.clear()
    clear_registry()


def declare(folder: Path, body: str) -> None:
    (folder / "pipelines.py").write_text(PIPELINES.format(body=body))


def statuses(folder: Path) -> dict[str, str]:
    log = SqliteRunLog(str(folder / "runs.db"))
    try:
        return {record.pipeline: record.status for record in log.list_runs(limit=10)[0]}
    finally:
        log.close()


def test_it_has_a_record_and_a_window_of_its_own(tmp_path: Path) -> None:
    declare(tmp_path, 'return {"until": end.isoformat()}')
    assert main(["run", "copied"]) == 0
    assert statuses(tmp_path) == {"copied": "succeeded", "mart": "succeeded"}
    log = SqliteRunLog(str(tmp_path / "runs.db"))
    assert [interval.status for interval in log.intervals("mart")] == ["done"]
    log.close()


def test_where_it_fails_the_load_before_it_is_reported_as_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    declare(tmp_path, 'return "SELECT nowhere FROM numbers"')
    assert main(["run", "copied"]) != 0
    told = capsys.readouterr().err
    assert "the load itself is there" in told
    assert "nothing was loaded" not in told
    assert statuses(tmp_path) == {"copied": "failed", "mart": "failed"}
    with closing(sqlite3.connect("shop.db")) as shop:
        assert shop.execute("SELECT count(*) FROM copied").fetchone() == (2,)
