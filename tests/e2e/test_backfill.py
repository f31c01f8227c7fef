"""`flow backfill` and `flow gaps` as a user meets them: windows loaded once, side by side, again after a failure."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from ematix_flow.declare.windows import DataWindow, format_instant
from ematix_flow.run_log import SqliteRunLog, from_url
from ematix_flow.run_log.schedule import Interval

ROWS_A_DAY = 8
PIPELINES = """
import os
import time

from ematix_flow import (
    Annotated, BigInt, ObjectStoreLocalConnection, PostgresConnection, SQLiteConnection, TimestampTZ, ematix, pk,
    register_connection,
)
from ematix_flow.pipeline import register

register_connection(SQLiteConnection(name="shop", path="shop.db"))
register_connection(SQLiteConnection(name="mart", path="mart.db"))
register_connection(ObjectStoreLocalConnection(name="lake", path="lake", format="parquet"))
register_connection(PostgresConnection(name="warehouse", url=os.environ.get("WAREHOUSE_URL", "postgresql://nobody@127.0.0.1:1/x")))
NEW = "SELECT id, at, amount FROM orders WHERE at >= {start} AND at < {end}"


@ematix.table(schema=os.environ.get("TEST_SCHEMA", "raw"))
class Orders:
    id: BigInt
    at: TimestampTZ
    amount: BigInt


@ematix.table(schema="raw")
class Latest:
    id: Annotated[BigInt, pk()]
    at: TimestampTZ
    amount: BigInt


@ematix.pipeline(target=Orders, source_connection="shop", target_connection="lake", mode="append")
def to_lake():
    return NEW


@ematix.pipeline(target=Orders, source_connection="shop", target_connection="warehouse", mode="append")
def to_warehouse(conn):
    return NEW


@ematix.pipeline(target=Orders, source_connection="shop", target_connection="warehouse", mode="append")
def slowly(start, end):
    time.sleep(0.4)
    return NEW


@ematix.pipeline(target=Latest, source_connection="shop", target_connection="mart", mode="merge")
def latest():
    return NEW


@ematix.pipeline(target=Orders, source_connection="shop", target_connection="mart", mode="append", name="live",
                 window_start=os.environ.get("TEST_WINDOW_START"), window_size="1d")
def live():
    return NEW


@ematix.pipeline(target=Orders, source_connection="shop", target_connection="mart", mode="append",
                 schedule="0 2 * * *", window_start="2026-01-01", window_size="1d")
def nightly():
    return NEW


@register(name="noted", schedule=None)
def noted(start, end):
    with open("noted.txt", "a") as out:
        out.write(f"{start:%m-%d %H:%M %Z} {end:%m-%d %H:%M}\\n")


@ematix.pipeline(target=Orders, source_connection="shop", target_connection="lake", mode="append",
                 timezone="Europe/Berlin")
def in_berlin():
    return NEW


@ematix.pipeline(target=Orders, source_connection="shop", target_connection="lake", mode="append")
def everything():
    return "SELECT id, at, amount FROM orders"


@ematix.pipeline(target=Orders, source_connection="shop", target_connection="lake", mode="append")
def misspelt():
    return "SELECT id, at, amuont FROM orders WHERE at >= {start} AND at < {end}"


@ematix.pipeline(target=Orders, source_connection="shop", target_connection="lake", mode="truncate")
def replaced():
    return NEW
"""
Answer = subprocess.CompletedProcess[str]


class Shop:
    """A project with orders in SQLite, eight a day."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        (folder / "pipelines.py").write_text(PIPELINES)
        source = str(Path(__file__).resolve().parents[2] / "src")
        self.environment = {
            **os.environ, "HOME": str(folder), "PYTHONPATH": source, "NO_COLOR": "1",
            "EMATIX_FLOW_RUN_LOG_PATH": str(folder / "run_log.db"), "EMATIX_FLOW_STAGE_DIR": str(folder / "stage"),
            **variables,
        }  # fmt: skip

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "ematix_flow.cli", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=pipe, stderr=pipe, text=True)

    def flow(self, *words: str) -> Answer:
        with self.start(*words) as process:
            out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def document(self, *words: str, code: int = 0) -> Any:
        done = self.flow(*words, "--json")
        assert done.returncode == code, done.stderr + done.stdout
        return json.loads(done.stdout)

    def sell(self, first: datetime, days: int) -> set[int]:
        """Orders at fixed hours of so many days; their ids."""
        sold = set()
        with closing(sqlite3.connect(self.folder / "shop.db")) as shop, shop:
            shop.execute("CREATE TABLE IF NOT EXISTS orders (id BIGINT, at TIMESTAMP, amount BIGINT)")
            for number in range(days * ROWS_A_DAY):
                at = first + timedelta(hours=24 / ROWS_A_DAY * number)
                identity = int(at.timestamp())
                shop.execute("INSERT INTO orders VALUES (?, ?, ?)", (identity, f"{at:%Y-%m-%d %H:%M:%S}", number))
                sold.add(identity)
        return sold

    def change(self, statement: str) -> None:
        with closing(sqlite3.connect(self.folder / "shop.db")) as shop, shop:
            shop.execute(statement)

    def in_lake(self) -> Counter[int]:
        import pyarrow.dataset as ds

        files = sorted((self.folder / "lake" / "raw" / "orders").rglob("*.parquet"))
        return Counter(ds.dataset(files).to_table(columns=["id"]).column("id").to_pylist()) if files else Counter()

    def in_mart(self, table: str) -> Counter[int]:
        with closing(sqlite3.connect(self.folder / "mart.db")) as mart:
            return Counter(row[0] for row in mart.execute(f"SELECT id FROM raw_{table}"))

    def in_warehouse(self) -> Counter[int]:
        import psycopg

        with psycopg.connect(self.environment["WAREHOUSE_URL"]) as client:
            rows = client.execute(f"SELECT id FROM {self.environment['TEST_SCHEMA']}.orders".encode()).fetchall()
        return Counter(row[0] for row in rows)

    def ledger(self, name: str) -> list[Interval]:
        with closing(SqliteRunLog(self.folder / "run_log.db")) as log:
            return log.intervals(name)

    def runs(self, name: str) -> int:
        with closing(SqliteRunLog(self.folder / "run_log.db")) as log:
            return log.list_runs(pipeline=name)[1]


JANUARY = datetime(2026, 1, 1, tzinfo=timezone.utc)
TODAY = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
DAY = timedelta(days=1)


@pytest.fixture
def shop(tmp_path: Path, warm_engine: dict[str, str]) -> Shop:
    return Shop(tmp_path, **warm_engine)


@pytest.fixture
def warehouse(tmp_path: Path, fresh_postgres: str, warm_engine: dict[str, str]) -> Shop:
    """The same shop with a PostgreSQL to load into, in a schema of its own."""
    schema = f"t_{tmp_path.name[-24:].lower().replace('-', '_')}"
    return Shop(tmp_path, WAREHOUSE_URL=fresh_postgres, TEST_SCHEMA=schema, **warm_engine)


@pytest.fixture
def running(tmp_path: Path, warm_engine: dict[str, str]) -> Callable[[str], Shop]:
    """The same shop with a pipeline that live runs load, from a day on."""
    return lambda start: Shop(tmp_path, TEST_WINDOW_START=start, **warm_engine)


def once(ids: set[int]) -> Counter[int]:
    return Counter(dict.fromkeys(ids, 1))


def test_every_day_is_loaded_once_however_often_it_is_asked_for(shop: Shop) -> None:
    sold = shop.sell(JANUARY, 6)
    first = shop.flow("backfill", "to_lake", "--from", "2026-01-01", "--to", "2026-01-05")
    assert first.returncode == 0, first.stderr
    assert "4 windows of 1d, 2026-01-01 – 2026-01-05 (UTC)" in first.stderr
    assert "4 windows loaded · 32 rows" in first.stderr
    again = shop.document("backfill", "to_lake", "--from", "2026-01-01", "--to", "2026-01-07")
    assert (again["windows"], again["loaded"], again["done_before"], again["rows"]) == (2, 2, 4, 16)
    assert shop.in_lake() == once(sold)
    nothing = shop.flow("backfill", "to_lake", "--from", "2026-01-02", "--to", "2026-01-06", "--chunk", "6h")
    assert (nothing.returncode, "nothing to load" in nothing.stderr) == (0, True)
    assert shop.runs("to_lake") == 6
    gaps = shop.document("gaps", "to_lake")
    assert [(item["state"], item["windows"]) for item in gaps["stretches"]] == [("done", 6)]
    assert (gaps["missing"], gaps["next"]) == ([], None)


def test_a_failed_day_fails_alone_and_is_all_that_is_tried_again(shop: Shop) -> None:
    sold = shop.sell(JANUARY, 5)
    shop.change("UPDATE orders SET amount = NULL WHERE at LIKE '2026-01-03 0%'")
    failed = shop.flow("backfill", "to_lake", "--from", "2026-01-01", "--to", "2026-01-06")
    assert failed.returncode == 1, failed.stderr
    assert "✗ to_lake: 1 of 5 windows not loaded" in failed.stderr
    assert "2026-01-03 – 2026-01-04" in failed.stderr
    assert "next: flow backfill to_lake --resume" in failed.stderr
    assert sum(shop.in_lake().values()) == 4 * ROWS_A_DAY
    gaps = shop.flow("gaps", "to_lake", "--check")
    assert gaps.returncode == 1
    assert [line.split()[0] for line in gaps.stdout.splitlines()] == ["done", "failed", "done"]
    assert "next: flow backfill to_lake --resume" in gaps.stderr
    shop.change("UPDATE orders SET amount = 1 WHERE amount IS NULL")
    resumed = shop.document("backfill", "to_lake", "--resume")
    assert (resumed["windows"], resumed["loaded"], resumed["rows"]) == (1, 1, ROWS_A_DAY)
    assert shop.in_lake() == once(sold)
    assert shop.flow("gaps", "to_lake", "--check").returncode == 0
    assert [item.attempt for item in shop.ledger("to_lake")] == [1, 1, 2, 1, 1]


@pytest.mark.full
def test_windows_side_by_side_load_every_row_once(warehouse: Shop) -> None:
    sold = warehouse.sell(JANUARY, 8)
    url = warehouse.environment["WAREHOUSE_URL"]
    told = warehouse.document("backfill", "to_warehouse", "--from", "2026-01-01", "--to", "2026-01-09", "--chunk", "12h",
                          "--parallel", "3", "--run-log", url)  # fmt: skip
    assert (told["windows"], told["loaded"], told["failed"], told["rows"]) == (16, 16, [], 64)
    assert warehouse.in_warehouse() == once(sold)
    with closing(from_url(url)) as log:
        assert len({item.worker_id for item in log.intervals("to_warehouse")}) > 1
    assert warehouse.ledger("to_warehouse") == []


@pytest.mark.slow
def test_two_backfills_at_once_share_the_windows(warehouse: Shop) -> None:
    sold = warehouse.sell(JANUARY, 6)
    words = ("backfill", "slowly", "--from", "2026-01-01", "--to", "2026-01-07", "--json")
    both = [warehouse.start(*words), warehouse.start(*words)]
    answers = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    assert warehouse.in_warehouse() == once(sold)
    assert warehouse.runs("slowly") == 6
    assert sum(json.loads(out)["rows"] for out, _ in answers) == len(sold)


@pytest.mark.parametrize(
    ("parallel", "sign"), [("1", signal.SIGINT), pytest.param("2", signal.SIGTERM, marks=pytest.mark.full)]
)
def test_an_interrupt_leaves_whole_windows_and_a_command_to_go_on_with(
    warehouse: Shop, parallel: str, sign: signal.Signals
) -> None:
    sold = warehouse.sell(JANUARY, 12)
    words = ("backfill", "slowly", "--from", "2026-01-01", "--to", "2026-01-13", "--parallel", parallel)
    process = warehouse.start(*words)
    deadline = time.monotonic() + 60
    while not any(item.status == "done" for item in warehouse.ledger("slowly")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(sign)
    _, said_on_stderr = process.communicate(timeout=60)
    assert process.returncode == 130, said_on_stderr
    assert "slowly: interrupted: " in said_on_stderr
    assert "next: flow backfill slowly --resume" in said_on_stderr
    there = warehouse.in_warehouse()
    assert 0 < len(there) < len(sold)
    assert len(there) % ROWS_A_DAY == 0
    assert warehouse.document("backfill", "slowly", "--resume")["left"] == 0
    assert warehouse.in_warehouse() == once(sold)


def test_live_runs_and_backfills_share_one_ledger(running: Callable[[str], Shop]) -> None:
    shop = running(format_instant(TODAY - 3 * DAY))
    sold = shop.sell(TODAY - 6 * DAY, 7)
    before_today = {identity for identity in sold if identity < TODAY.timestamp()}
    first = shop.document("run", "live")["results"][0]
    assert first["window"] == str(DataWindow(TODAY - 3 * DAY, TODAY))
    assert first["targets"][0]["rows_read"] == 3 * ROWS_A_DAY
    assert first["targets"][0]["watermark"] == f"{TODAY:%Y-%m-%d} 00:00:00+00:00"
    second = shop.flow("run", "live")
    assert (second.returncode, "nothing new: loaded until" in second.stdout) == (0, True), second.stderr
    older = shop.document("backfill", "live", "--from", format_instant(TODAY - 6 * DAY), "--chunk", "1d")
    assert (older["windows"], older["loaded"], older["rows"]) == (3, 3, 3 * ROWS_A_DAY)
    assert shop.in_mart("orders") == once(before_today)
    assert [item["state"] for item in shop.document("gaps", "live")["stretches"]] == ["done"]


def test_a_live_run_goes_on_after_a_backfill_and_takes_up_what_failed(running: Callable[[str], Shop]) -> None:
    shop = running(format_instant(TODAY - 5 * DAY))
    sold = shop.sell(TODAY - 5 * DAY, 5)
    assert shop.document("backfill", "live", "--to", format_instant(TODAY - 2 * DAY))["rows"] == 3 * ROWS_A_DAY
    shop.change(f"UPDATE orders SET amount = NULL WHERE at >= '{format_instant(TODAY - DAY)}'")
    failed = shop.document("run", "live", code=4)
    assert failed["facts"]["window"] == str(DataWindow(TODAY - 2 * DAY, TODAY))
    assert shop.ledger("live")[-1].status == "failed"
    shop.change("UPDATE orders SET amount = 1 WHERE amount IS NULL")
    retried = shop.document("run", "live")["results"][0]
    assert (retried["window"], retried["targets"][0]["rows_read"]) == (
        str(DataWindow(TODAY - 2 * DAY, TODAY)),
        2 * ROWS_A_DAY,
    )
    assert shop.in_mart("orders") == once(sold)


def test_a_scheduled_run_loads_until_its_slot_and_not_until_a_worker_gets_to_it(shop: Shop) -> None:
    shop.sell(JANUARY, 6)
    windows = []
    for now in ("2026-01-03T02:00:30Z", "2026-01-03T02:00:50Z", "2026-01-04T02:00:10Z"):
        done = shop.flow("run-due", "--now", now)
        assert done.returncode == 0, done.stderr
        windows += [ran["window"] for ran in json.loads(done.stdout)["ran"]]
    assert windows == [
        str(DataWindow(JANUARY, JANUARY + 2 * DAY)),
        str(DataWindow(JANUARY + 2 * DAY, JANUARY + 3 * DAY)),
    ]
    assert sum(shop.in_mart("orders").values()) == 3 * ROWS_A_DAY
    shown = shop.flow("runs", "list", "--pipeline", "nightly").stdout.splitlines()[1].split()[0]
    assert f"window    {windows[1]}" in shop.flow("runs", "show", shown).stdout


def test_a_plain_function_gets_its_windows_one_by_one(shop: Shop) -> None:
    words = ("backfill", "noted", "--from", "2026-01-01", "--to", "2026-01-02", "--chunk", "12h", "--parallel", "2")
    assert shop.document(*words)["loaded"] == 2
    noted = (shop.folder / "noted.txt").read_text().splitlines()
    assert noted == ["01-01 00:00 UTC 01-01 12:00", "01-01 12:00 UTC 01-02 00:00"]


def test_the_first_live_run_needs_to_know_where_to_begin(shop: Shop) -> None:
    shop.sell(JANUARY, 1)
    refused = shop.flow("run", "to_lake")
    assert refused.returncode == 3
    assert "nothing says where the first window begins" in refused.stderr
    assert "window_start=" in refused.stderr


def test_a_merge_keeps_the_order_of_windows_and_stops_at_the_first_that_fails(shop: Shop) -> None:
    shop.sell(JANUARY, 4)
    shop.change("UPDATE orders SET id = 7")  # one customer, who changes all the time
    shop.change("DELETE FROM orders WHERE at NOT LIKE '%09:00:00'")
    shop.change("UPDATE orders SET amount = NULL WHERE at LIKE '2026-01-03%'")
    words = ("backfill", "latest", "--from", "2026-01-01", "--to", "2026-01-05", "--parallel", "4")
    stopped = shop.flow(*words)
    assert stopped.returncode == 1, stopped.stderr
    assert "one window at a time: a merge keeps what came last" in stopped.stderr
    assert [item.status for item in shop.ledger("latest")] == ["done", "done", "failed", "planned"]
    shop.change("UPDATE orders SET amount = 3 WHERE amount IS NULL")
    assert shop.document(*words)["loaded"] == 2
    assert shop.in_mart("latest") == {7: 1}
    with closing(sqlite3.connect(shop.folder / "mart.db")) as mart:
        assert mart.execute("SELECT at FROM raw_latest").fetchall() == [("2026-01-04 09:00:00.000000+00:00",)]


def test_days_are_those_of_the_pipelines_time_zone(shop: Shop) -> None:
    plan = shop.document("backfill", "in_berlin", "--from", "2026-03-28", "--to", "2026-03-31", "--dry-run")
    assert plan["windows"] == [
        "2026-03-27T23:00:00Z/2026-03-28T23:00:00Z",
        "2026-03-28T23:00:00Z/2026-03-29T22:00:00Z",
        "2026-03-29T22:00:00Z/2026-03-30T22:00:00Z",
    ]
    assert shop.ledger("in_berlin") == []
    shown = shop.flow("backfill", "in_berlin", "--from", "2026-03-28", "--to", "2026-03-31", "--dry-run")
    assert shown.stdout.splitlines()[1].strip() == "2026-03-29 – 2026-03-30"


def test_windows_that_are_done_are_loaded_again_only_when_that_is_asked_for(shop: Shop) -> None:
    shop.sell(JANUARY, 3)
    words = ("backfill", "latest", "--from", "2026-01-01", "--to", "2026-01-04")
    assert shop.document(*words)["loaded"] == 3
    shop.change("UPDATE orders SET amount = 4711 WHERE at LIKE '2026-01-02%'")
    redone = shop.document("backfill", "latest", "--from", "2026-01-02", "--to", "2026-01-03", "--redo")
    assert (redone["windows"], redone["loaded"], redone["rows"]) == (1, 1, ROWS_A_DAY)
    with closing(sqlite3.connect(shop.folder / "mart.db")) as mart:
        assert mart.execute("SELECT COUNT(*) FROM raw_latest WHERE amount = 4711").fetchone() == (ROWS_A_DAY,)
        assert mart.execute("SELECT COUNT(*) FROM raw_latest").fetchone() == (3 * ROWS_A_DAY,)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("everything", "--from", "2026-01-01", "--to", "2026-01-03"), 3, "does not read by windows"),
        (("replaced", "--from", "2026-01-01", "--to", "2026-01-03"), 3, "each window would replace the one before it"),
        (("to_lake",), 3, "nothing says where the backfill begins"),
        (("to_lake", "--from", "2026-01-03", "--to", "2026-01-03"), 3, "there is nothing to load"),
        (("to_lake", "--from", "2026-01-01", "--to", "2999-01-01"), 3, "lies ahead"),
        (("to_lake", "--from", "soon"), 3, "--from 'soon' is not a time"),
        (("to_lake", "--from", "2026-01-01", "--chunk", "1m"), 3, "--chunk '1m' is no length of time"),
        (("to_lak", "--from", "2026-01-01"), 2, "did you mean 'to_lake'?"),
        (("to_lake", "--from", "2026-01-01", "--no-run-log"), 2, "this needs the run log"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_is_planned(
    shop: Shop, words: tuple[str, ...], code: int, says: str
) -> None:
    shop.sell(JANUARY, 1)
    refused = shop.flow("backfill", *words)
    assert refused.returncode == code, refused.stderr
    assert says in refused.stderr
    assert "Traceback" not in refused.stderr
    assert shop.ledger(words[0]) == []


def test_what_is_wrong_with_every_window_stops_at_the_first(shop: Shop) -> None:
    shop.sell(JANUARY, 3)
    stopped = shop.document("backfill", "misspelt", "--from", "2026-01-01", "--to", "2026-01-04", code=1)
    assert (len(stopped["failed"]), stopped["left"]) == (1, 2)
    assert "amuont" in stopped["failed"][0]["error"]
    assert shop.runs("misspelt") == 1
    shown = shop.flow("backfill", "misspelt", "--resume").stderr
    assert "pipelines.py:" in shown
    assert "did you mean: amount?" in shown or "did you mean 'amount'?" in shown
    assert "2 windows not tried: every one would fail like this" in shown


def test_preview_and_validate_show_the_last_window(running: Callable[[str], Shop]) -> None:
    shop = running("2026-01-01")
    shop.sell(TODAY - 2 * DAY, 2)
    assert f"'{format_instant(TODAY - DAY)}'" in shop.document("preview", "live")["source_sql"]
    assert shop.document("validate", "live")["ok"] is True
    assert shop.ledger("live") == []
