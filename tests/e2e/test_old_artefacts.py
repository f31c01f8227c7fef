"""What an older version wrote goes on with this one: tables, history, tokens, checkpoints with state, and the run log.

The archives are made by `tests/artefacts/make.py`, which says how the older version was stopped: some loads and both streams
were killed where the target, or the state, has the rows and nothing else knows it. All paths in the project are relative
to its folder, and checkpoints name files relative to the folder that is watched, so that a project is moved by unpacking
it elsewhere.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from ematix_flow.cli import main
from ematix_flow.declare import registry
from ematix_flow.declare.connections import clear_registry
from tests.artefacts.arrivals import customers_in, new_file, new_orders, readings

ARTEFACTS = Path(__file__).resolve().parents[1] / "artefacts"
ARCHIVES = sorted(path.name for path in ARTEFACTS.glob("*.tar.gz"))
JARS = {"delta"}
Flow = Callable[..., Any]
PIPELINES = (
    "orders_to_duckdb", "orders_to_parquet", "orders_to_sqlite", "customers_to_duckdb", "customers_to_delta",
    "cities_to_duckdb", "history_to_delta",
)  # fmt: skip


@pytest.fixture(params=ARCHIVES)
def project(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose files an older version wrote."""
    shutil.unpack_archive(ARTEFACTS / request.param, tmp_path)
    shutil.copy(ARTEFACTS / "project" / "pipelines.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "EMATIX_FLOW_RUN_LOG_PATH": "runs.db", "EMATIX_FLOW_LOGS_DIR": "logs", "EMATIX_FLOW_STAGE_DIR": "stage",
        "HOME": "home", "EMATIX_FLOW_RUN_RETENTION_DAYS": "0",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value if value.isdigit() else str(tmp_path / value))
    return tmp_path


@pytest.fixture
def flow(project: Path, capsys: pytest.CaptureFixture[str]) -> Flow:
    """The command line in this process; it returns the document that the command prints, and must succeed."""

    def call(*words: str) -> Any:
        registry.clear()
        clear_registry()
        capsys.readouterr()
        code = main([*words, "--json"])
        written = capsys.readouterr()
        assert code == 0, written.err + written.out
        return json.loads(written.out)

    return call


@pytest.mark.slow
def test_loads_go_on_with_the_next_rows_and_double_none(project: Path, flow: Flow, spark: Any) -> None:
    new_orders(project, range(11, 14))
    customers_in(project, {1: "Lima", 4: "Bern"}, day=4)
    loaded = {result["pipeline"]: result["targets"][0] for result in flow("run", "--all")["results"]}
    counts = {name: (item["rows_inserted"], item["rows_updated"], item["rows_closed"]) for name, item in loaded.items()}
    assert counts == {
        "orders_to_duckdb": (3, 0, 0), "orders_to_parquet": (3, 0, 0), "orders_to_sqlite": (5, 0, 0),
        "customers_to_duckdb": (1, 2, 0), "customers_to_delta": (1, 2, 0),
        "cities_to_duckdb": (3, 0, 2), "history_to_delta": (2, 0, 1),
    }  # fmt: skip
    orders = [(number, number * 10) for number in range(1, 14)]
    customers = [(1, "Lima"), (2, "Oslo"), (3, "Rome"), (4, "Bern")]
    versions = [
        (1, "Berlin", False), (1, "Lima", True), (1, "Paris", False), (2, "Oslo", True), (2, "Ulm", False),
        (3, "Rome", True), (4, "Bern", True),
    ]  # fmt: skip
    with duckdb.connect("mart.duckdb", read_only=True) as mart:
        assert sorted(mart.sql("SELECT id, amount FROM main.orders").fetchall()) == orders
        assert sorted(mart.sql("SELECT id, city FROM main.customers").fetchall()) == customers
        assert sorted(mart.sql("SELECT id, city, is_current FROM main.cities").fetchall()) == versions
    assert rows(ds.dataset("files/main/orders", format="parquet"), "id", "amount") == orders
    assert in_shop("SELECT id, amount FROM orders") == orders
    assert in_lake("customers", "id", "city") == customers
    assert in_lake("history", "id", "city", "is_current") == versions
    days = {(key, city): (since.day, until and until.day) for key, city, since, until in
            in_lake("history", "id", "city", "valid_from", "valid_to")}  # fmt: skip
    assert days == {
        (1, "Berlin"): (1, 2), (1, "Paris"): (2, 4), (1, "Lima"): (4, None), (2, "Ulm"): (1, 3), (2, "Oslo"): (3, None),
        (3, "Rome"): (2, None), (4, "Bern"): (4, None),
    }  # fmt: skip


@pytest.mark.slow
def test_streams_go_on_from_their_checkpoints_with_their_state(project: Path, flow: Flow, spark: Any) -> None:
    new_file(project, "readings", "3.jsonl", readings(("01:50", 16), ("00:30", 64), ("02:05", 32)))
    new_file(project, "events", "3.jsonl", [{"id": 4, "note": "d"}])
    for stream in ("per_minute", "events"):
        flow("consume", stream, "--once")
    minutes = in_shop("SELECT sensor, substr(window_start, 12, 5), readings, total FROM per_minute")
    assert minutes == [("s1", "10:00", 2, 3), ("s1", "10:01", 3, 28)]  # 64 came late, the last minute is still open
    assert in_lake("events", "id", "note") == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert flow("dlq", "list", "per_minute")["depth"]["pending"] == 2
    for stream in ("per_minute", "events"):
        assert {item["status"] for item in flow("doctor", "checkpoint", stream)["findings"]} == {"ok"}


def test_the_run_log_shows_the_older_runs(project: Path, flow: Flow) -> None:
    runs = flow("runs", "list", "--limit", "100")["runs"]
    assert {run["pipeline"] for run in runs} == set(PIPELINES) | {"per_minute", "events"}
    for name in PIPELINES:
        assert sum(run["pipeline"] == name and run["status"] == "succeeded" for run in runs) == 2
    assert flow("runs", "show", runs[-1]["run_id"])["run_id"] == runs[-1]["run_id"]
    assert {entry["name"] for entry in flow("status")} >= set(PIPELINES)
    assert {entry["name"] for entry in flow("stream", "status")} == {"per_minute", "events"}


def rows(table: Any, *columns: str) -> list[tuple[Any, ...]]:
    """The sorted rows of a data set."""
    return sorted(tuple(row.values()) for row in table.to_table(columns=list(columns)).to_pylist())


def in_lake(table: str, *columns: str) -> list[tuple[Any, ...]]:
    """The sorted rows of a Delta table."""
    found = DeltaTable(f"lake/main/{table}").to_pyarrow_table(columns=list(columns)).to_pylist()
    return sorted((tuple(row.values()) for row in found), key=str)


def in_shop(sql: str) -> list[tuple[Any, ...]]:
    """The sorted rows of a query in SQLite."""
    with closing(sqlite3.connect("shop.db")) as shop:
        return sorted(shop.execute(sql))
