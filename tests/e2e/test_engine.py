"""The warm engine as a user meets it: start, join, survive a stale or killed one, stop."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

PIPELINES = """
from typing import Annotated
from ematix_flow import BigInt, DuckDBConnection, SQLiteConnection, Text, ematix, pk

shop = SQLiteConnection(name="shop", path="shop.db")
house = DuckDBConnection(name="house", path="house.duckdb")

@ematix.table(schema="raw")
class People:
    id: Annotated[BigInt, pk()]
    name: Text | None

@ematix.pipeline(target=People, target_connection=house, source_connection=shop, mode="merge", force_lane="arrow")
def people():
    return "SELECT id, name FROM people"

@ematix.table(schema="raw")
class Shouted:
    id: Annotated[BigInt, pk()]
    name: Text | None

@ematix.pipeline(target=Shouted, target_connection=house, source_connection=shop, mode="truncate")
def shouted(spark):
    from pyspark.sql.functions import udf

    return spark.createDataFrame([(1, "ana")], "id BIGINT, name STRING").withColumn("name", udf(loud)("name"))

def loud(text):
    return f"{text}!"

@ematix.pipeline(target=Shouted, target_connection=house, source_connection=shop, mode="truncate")
def endless(spark):
    from pyspark.sql.functions import udf

    return spark.createDataFrame([(1, "ana")], "id BIGINT, name STRING").withColumn("name", udf(asleep)("name"))

def asleep(text):
    import pathlib, time

    pathlib.Path("asleep").touch()
    time.sleep(600)
    return text
"""


class Project:
    """A folder with pipelines, and an engine folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pipelines.py").write_text(PIPELINES)
        with closing(sqlite3.connect(folder / "shop.db")) as sql, sql:
            sql.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)")
            sql.execute("INSERT INTO people VALUES (1, 'Ana'), (2, NULL)")
        logs = {"EMATIX_FLOW_LOGS_DIR": str(folder / "logs"), "EMATIX_FLOW_RUN_LOG_PATH": str(folder / "run_log.db")}
        own = {
            **logs,
            "EMATIX_FLOW_ENGINE": "auto",
            "EMATIX_FLOW_ENGINE_DIR": str(folder / "engine"),
            "HOME": str(folder),
        }
        self.environment = {**os.environ, **own, "EMATIX_FLOW_DRIVER_MEMORY": "1g"}

    def flow(self, *words: str, **more: str) -> Any:
        command = [sys.executable, "-m", "ematix_flow.cli", *words, "--json"]
        done = subprocess.run(
            command, cwd=self.folder, env={**self.environment, **more}, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout)

    def run(self, name: str, **more: str) -> Any:
        (result,) = self.flow("run", name, **more)["results"]
        return result

    def sessions_started(self) -> int:
        """JVMs that runs started for themselves: each has a log of its own."""
        return len(list((self.folder / "logs").glob("spark-*.log")))

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        import duckdb

        with duckdb.connect(str(self.folder / "house.duckdb"), read_only=True) as house:
            return house.execute(f"SELECT id, name FROM raw.{table} ORDER BY id").fetchall()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """One engine for the tests of this module."""
    made = Project(tmp_path_factory.mktemp("engine"))
    cache = os.environ.get("EMATIX_FLOW_CACHE") or str(Path.home() / ".cache" / "ematix-flow")
    made.environment["EMATIX_FLOW_CACHE"] = cache  # the jars are not fetched again
    started = made.flow("engine", "start")
    assert started["started"]
    assert started["alive"]
    yield made
    made.flow("engine", "stop")


def test_runs_join_the_engine_and_start_no_session_of_their_own(project: Project) -> None:
    before = project.sessions_started()
    assert project.run("people")["status"] == "success"
    again = project.run("people")
    assert (again["targets"][0]["rows_unchanged"], again["targets"][0]["lane"]) == (2, "arrow")
    assert project.rows("people") == [(1, "Ana"), (2, None)]
    assert project.sessions_started() == before
    assert project.flow("engine", "start")["started"] is False


def test_a_function_of_the_users_module_runs_in_the_engine(project: Project) -> None:
    project.run("shouted")
    assert project.rows("shouted") == [(1, "ana!")]


@pytest.mark.full
def test_an_engine_may_be_addressed_as_a_cluster_by_spark_connect(project: Project) -> None:
    (file,) = (project.folder / "engine").glob("*.json")
    kept = json.loads(file.read_text())
    address = f"sc://localhost:{kept['port']}/;token={kept['token']}"
    before = project.sessions_started()
    project.run("shouted", EMATIX_FLOW_ENGINE="distributed", EMATIX_FLOW_MASTER=address)
    assert project.rows("shouted") == [(1, "ana!")]
    assert project.sessions_started() == before


def test_the_file_with_the_token_is_for_its_user_only(project: Project) -> None:
    (file,) = (project.folder / "engine").glob("*.json")
    assert file.stat().st_mode & 0o077 == 0
    token = json.loads(file.read_text())["token"]
    assert token not in json.dumps(project.flow("engine", "status"))


def test_a_client_without_the_token_is_turned_away(project: Project) -> None:
    (file,) = (project.folder / "engine").glob("*.json")
    port = json.loads(file.read_text())["port"]
    asked = (
        "from pyspark.sql import SparkSession\n"
        f"SparkSession.builder.remote('sc://localhost:{port}/;token=wrong').create().range(1).collect()"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "UNAUTHENTICATED" in done.stderr or "authentication" in done.stderr.lower()


@pytest.mark.full
def test_an_engine_that_dies_in_the_middle_fails_the_run_with_a_sentence_and_the_next_run_is_whole(
    project: Project,
) -> None:
    before = project.rows("shouted")
    command = [sys.executable, "-m", "ematix_flow.cli", "run", "endless"]
    running = subprocess.Popen(
        command, cwd=project.folder, env=project.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    (told,) = project.flow("engine", "status")
    awaited(lambda: (project.folder / "asleep").exists())
    os.kill(told["pid"], signal.SIGKILL)
    _, said = running.communicate(timeout=120)
    assert running.returncode != 0
    assert "engine went away" in said
    assert "Traceback" not in said
    assert project.rows("shouted") == before
    assert project.run("shouted")["status"] == "success"
    assert project.flow("engine", "start")["started"]


@pytest.mark.full
def test_something_else_on_the_port_of_an_engine_is_not_taken_for_it(project: Project) -> None:
    (file,) = (project.folder / "engine").glob("*.json")
    written = json.loads(file.read_text())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file.write_text(json.dumps({**written, "port": silent.getsockname()[1]}))
        try:
            before = project.sessions_started()
            started = time.monotonic()
            assert project.flow("engine", "status")[0]["alive"] is False
            assert time.monotonic() - started < 30
            assert project.run("people")["status"] == "success"
            assert project.sessions_started() == before + 1
        finally:
            file.write_text(json.dumps(written))


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root can give a file to another user")
def test_an_engine_of_another_user_is_not_joined(project: Project) -> None:
    (file,) = (project.folder / "engine").glob("*.json")
    os.chown(file, 65534, -1)
    try:
        assert project.flow("engine", "status") == []
    finally:
        os.chown(file, os.getuid(), -1)


@pytest.mark.full("an engine more; flow doctor tells of the archive")
def test_a_class_archive_that_is_no_archive_is_passed_over(project: Project, tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "jars"
    asked = "from ematix_flow.engine.session import class_archive; print(class_archive.archive_file([]))"
    own = {**project.environment, "EMATIX_FLOW_CACHE": str(cache), "EMATIX_FLOW_ENGINE": "local"}
    done = subprocess.run([sys.executable, "-c", asked], env=own, capture_output=True, text=True, check=True)
    file = Path(done.stdout.strip())
    assert tmp_path in file.parents
    file.parent.mkdir(parents=True)
    file.write_bytes(b"this is no class archive" * 1000)
    ran = subprocess.run(
        [sys.executable, "-m", "ematix_flow.cli", "run", "people"],
        cwd=project.folder, env=own, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "archive" not in (ran.stdout + ran.stderr).lower()


def awaited(what: Callable[[], bool], seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.full
def test_a_killed_engine_is_not_missed(project: Project) -> None:
    (told,) = project.flow("engine", "status")
    os.kill(told["pid"], signal.SIGKILL)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and project.flow("engine", "status")[0]["alive"]:
        time.sleep(0.2)
    before = project.sessions_started()
    assert project.run("people")["status"] == "success"
    assert project.sessions_started() == before + 1
    assert project.flow("engine", "start")["started"]


@pytest.mark.full
def test_local_means_that_no_engine_is_joined(project: Project) -> None:
    before = project.sessions_started()
    project.run("people", EMATIX_FLOW_ENGINE="local")
    assert project.sessions_started() == before + 1
