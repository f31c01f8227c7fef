"""Five million rows go through with a driver of one gigabyte: nothing is collected."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

ROWS = 5_000_000
ROOT = Path(__file__).resolve().parents[2]
_MAKE = "SELECT i AS id, 'event number ' || i AS name, CAST(i % 10000 AS DECIMAL(12, 2)) / 100 AS amount"


@pytest.fixture
def environment(fresh_postgres: str, tmp_path: Path) -> dict[str, str]:
    """Where the pipelines read and write; a heap of 1 GB and a home of their own."""
    cache = os.environ.get("EMATIX_FLOW_CACHE", str(Path.home() / ".cache" / "ematix-flow"))
    return {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "HOME": str(tmp_path),
        "EMATIX_FLOW_CACHE": cache,
        "EMATIX_FLOW_DRIVER_MEMORY": "1g",
        "EMATIX_FLOW_STAGE_DIR": str(tmp_path / "stage"),
        "EMATIX_FLOW_RUN_LOG_PATH": str(tmp_path / "run_log.db"),
        "SCALE_POSTGRES": fresh_postgres,
        "SCALE_LAKE": str(tmp_path / "lake"),
        "SCALE_FILES": str(tmp_path / "files"),
    }


def run(name: str, environment: dict[str, str]) -> dict[str, Any]:
    """`flow run --json` in a process of its own."""
    command = [sys.executable, "-m", "ematix_flow.cli", "run", "--module", "tests.scale.pipelines", name, "--json"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.full("five million rows")
def test_postgres_to_delta(environment: dict[str, str]) -> None:
    with psycopg.connect(environment["SCALE_POSTGRES"], autocommit=True) as client:
        client.execute("CREATE SCHEMA raw")
        client.execute(
            "CREATE TABLE raw.events AS SELECT i::bigint AS id, 'event number ' || i AS name, "
            f"(i % 10000)::numeric / 100 AS amount, timestamptz '2026-01-01' + i * interval '1 second' AS at "
            f"FROM generate_series(1, {ROWS}) AS i"
        )
        expected = client.execute("SELECT count(*), sum(id), sum(amount) FROM raw.events").fetchone()
    run("postgres_to_delta", environment)
    from deltalake import DeltaTable

    found = duckdb.from_arrow(DeltaTable(f"{environment['SCALE_LAKE']}/big/events").to_pyarrow_dataset())
    assert found.aggregate("count(*), sum(id), sum(amount)").fetchall()[0] == expected


@pytest.mark.full
def test_parquet_to_postgres(environment: dict[str, str]) -> None:
    folder = Path(environment["SCALE_FILES"]) / "raw" / "events"
    folder.mkdir(parents=True)
    made = f"{_MAKE}, TIMESTAMPTZ '2026-01-01' + to_seconds(i) AS at FROM range(1, {ROWS + 1}) AS r(i)"
    duckdb.sql(f"COPY ({made}) TO '{folder}/part.parquet' (FORMAT parquet, ROW_GROUP_SIZE 500000)")
    run("parquet_to_postgres", environment)
    with psycopg.connect(environment["SCALE_POSTGRES"]) as client:
        found = client.execute("SELECT count(*), sum(id), count(DISTINCT id) FROM big.events").fetchone()
    assert found == (ROWS, ROWS * (ROWS + 1) // 2, ROWS)
