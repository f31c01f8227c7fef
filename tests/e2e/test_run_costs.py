"""What a run costs, as a user sees it: run twice, show, compare; inside one database, on Spark, and where it fails."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

PIPELINES = """
from typing import Annotated
from ematix_flow import BigInt, DuckDBConnection, ObjectStoreLocalConnection, SQLiteConnection, Target, Text, ematix, pk

shop = SQLiteConnection(name="shop", path="shop.db")
house = DuckDBConnection(name="house", path="house.duckdb")
lake = ObjectStoreLocalConnection(name="lake", path="lake", format="parquet")

@ematix.table(schema="raw")
class People:
    id: Annotated[BigInt, pk()]
    name: Text | None

@ematix.table(schema="main")
class Copied:
    id: Annotated[BigInt, pk()]
    name: Text | None

QUERY = "SELECT id, name FROM people"

@ematix.pipeline(target=People, target_connection=house, source_connection=shop, mode="merge")
def people():
    return QUERY

@ematix.pipeline(source_connection=shop, targets=[Target(table=People, connection=house, mode="merge"),
                                                  Target(table=People, connection=lake, mode="truncate")])
def everywhere():
    return QUERY

@ematix.pipeline(target=Copied, target_connection=shop, mode="merge")
def copied(conn):
    return QUERY

@ematix.pipeline(target=People, target_connection=house, source_connection=shop, mode="merge")
def broken():
    return "SELECT id, name AS nam FROM people"
"""
ROWS = 500


class Project:
    """A folder with pipelines, and a home and a run log of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pipelines.py").write_text(PIPELINES)
        (folder / "lake").mkdir()
        with closing(sqlite3.connect(folder / "shop.db")) as sql, sql:
            sql.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)")
            sql.executemany("INSERT INTO people VALUES (?, ?)", [(number, f"n{number:07}") for number in range(ROWS)])
        cache = os.environ.get("EMATIX_FLOW_CACHE") or str(Path.home() / ".cache" / "ematix-flow")
        own = {"EMATIX_FLOW_LOGS_DIR": str(folder / "logs"), "EMATIX_FLOW_RUN_LOG_PATH": str(folder / "run_log.db"),
               "EMATIX_FLOW_ENGINE": "local", "HOME": str(folder), "EMATIX_FLOW_CACHE": cache,
               "EMATIX_FLOW_DRIVER_MEMORY": "1g"}  # fmt: skip
        self.environment = {**os.environ, **own}

    def flow(self, *words: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "ematix_flow.cli", *words]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == code, done.stderr + done.stdout
        return done.stdout

    def run(self, *names: str) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = json.loads(self.flow("run", *names, "--json"))["results"]
        return results

    def extras(self, run_id: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.flow("runs", "show", run_id, "--json"))["extras"]
        return found


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """One for all tests of this module: runs only add to its history."""
    return Project(tmp_path_factory.mktemp("costs"))


@pytest.fixture(scope="module")
def through_spark(project: Project) -> list[dict[str, Any]]:
    """Two runs of one process, which starts Spark for the first."""
    return project.run("people", "everywhere")


def seconds_of(result: dict[str, Any]) -> dict[str, float]:
    return {item["step"]: item["seconds"] for item in result["steps"]}


@pytest.mark.full
def test_a_load_inside_one_database_is_measured_and_two_runs_of_it_are_compared(project: Project) -> None:
    (first,), (second,) = project.run("copied"), project.run("copied")
    steps = seconds_of(first)
    assert {"plan", "ensure", "stage", "publish"} <= set(steps)
    assert "start" not in steps
    assert sum(steps.values()) == pytest.approx(first["seconds"], abs=0.05)
    assert first["session"] is None
    assert first["cpu_seconds"] > 0
    (target,) = first["targets"]
    assert (target["lane"], target["path"], target["rows_read"]) == ("database", "same_db", ROWS)
    assert target["lane_reason"]
    assert target["path_reason"]
    shown = project.flow("runs", "show", first["run_id"])
    for text in (f"rows      {ROWS} in, ", "cores on average", "none: no Spark", "why       "):
        assert text in shown
    told = project.flow("runs", "compare", first["run_id"][:8], second["run_id"][:8])
    header, *rows = told.splitlines()
    assert header.split() == [first["run_id"][:8], second["run_id"][:8], "CHANGE"]
    assert {"took", "plan", "stage", "rows", "cpu"} <= {row.split()[0] for row in rows}
    (same,) = [row for row in rows if row.startswith("the same: ")]
    for word in ("lane", "path", "engine", "declared", "machine"):
        assert word in same
    assert first["run_id"][:8] in rows[-1] or "both took about as long" in rows[-1]
    assert json.loads(project.flow("runs", "compare", second["run_id"], "--json"))["before"] == first["run_id"]


@pytest.mark.full
def test_a_load_through_spark_tells_its_session_settings_and_processor_seconds(
    project: Project, through_spark: list[dict[str, Any]]
) -> None:
    result, _ = through_spark
    steps = seconds_of(result)
    assert steps["start"] > 0.5
    assert result["session"] == {"kind": "local", "engine": "local[*]", "how": "started", "seconds": steps["start"]}
    assert result["cpu_seconds"] > 1  # a JVM has started
    (target,) = result["targets"]
    assert (target["lane"], target["bytes_of"]) == ("arrow", "arrow")
    assert ROWS * 8 * 2 <= target["bytes_staged"] <= ROWS * 40
    kept = project.extras(result["run_id"])
    assert kept["settings"]["spark.sql.session.timeZone"] == "UTC"
    assert kept["settings"]["spark.driver.memory"] == "1g"
    assert not [name for name in kept["settings"] if name.startswith("spark.app.")]
    assert kept["versions"]["pyspark"]
    assert "as Arrow batches" in project.flow("runs", "show", result["run_id"])
    inside, *_ = project.run("copied")
    told = project.flow("runs", "compare", inside["run_id"], result["run_id"])
    assert "database (" in told
    assert "none: no Spark was needed" in told
    assert f"{result['run_id'][:8]} took " in told
    assert f" longer than {inside['run_id'][:8]}, mainly in " in told


@pytest.mark.full
def test_every_target_of_a_fan_out_has_its_own_bytes(project: Project, through_spark: list[dict[str, Any]]) -> None:
    _, result = through_spark
    assert result["session"]["how"] == "reused"
    assert seconds_of(result).get("start", 0) < 1
    house, lake = result["targets"]
    assert (house["bytes_of"], lake["bytes_of"]) == ("arrow", "files")
    assert ROWS * 8 * 2 <= house["bytes_staged"] <= ROWS * 40
    assert lake["bytes_staged"] > 500
    assert "in files" in project.flow("runs", "show", result["run_id"])


@pytest.mark.full
def test_a_load_inside_the_database_moves_no_bytes_that_could_be_counted(project: Project) -> None:
    (result,) = project.run("copied")
    (target,) = result["targets"]
    assert (target["path"], target["bytes_staged"], result["session"]) == ("same_db", None, None)
    assert "bytes " not in project.flow("runs", "show", result["run_id"])


@pytest.mark.full
def test_a_run_that_failed_still_tells_its_steps(project: Project) -> None:
    project.flow("run", "broken", code=3)
    (run,) = json.loads(project.flow("runs", "list", "--pipeline", "broken", "--json"))["runs"]
    kept = project.extras(run["run_id"])
    assert "plan" in seconds_of(kept)
    assert kept["cpu_seconds"] >= 0  # a hundredth of a second may be all it took
    assert "until it failed" in project.flow("runs", "show", run["run_id"])


@pytest.mark.full("an engine of its own for one figure")
def test_the_processor_seconds_of_a_warm_engine_count(project: Project) -> None:
    own = {"EMATIX_FLOW_ENGINE": "auto", "EMATIX_FLOW_ENGINE_DIR": str(project.folder / "engine")}
    project.environment.update(own)
    try:
        engine = json.loads(project.flow("engine", "start", "--json"))
        (result,) = project.run("people")
    finally:
        project.flow("engine", "stop")
        project.environment["EMATIX_FLOW_ENGINE"] = "local"
    session = result["session"]
    assert (session["kind"], session["pid"], session["how"]) == ("warm", engine["pid"], "joined")
    assert result["cpu_seconds"] > 0
    assert result["targets"][0]["bytes_of"] == "arrow"
    shown = project.flow("runs", "show", result["run_id"])
    assert f"engine    engine {engine['pid']}, kept for the next commands" in shown
    assert "token" not in json.dumps(project.extras(result["run_id"])["settings"]).replace("|token|", "")
