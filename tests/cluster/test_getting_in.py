"""Clusters that do not answer, do not take everybody in, or lack something: one sentence each, and what to do."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.places import TestCluster, bare_python, wait_for

full = pytest.mark.full("a session start each")
PIPELINES = """
from typing import Annotated
from ematix_flow import BigInt, DuckDBConnection, PostgresConnection, SQLiteConnection, Text, ematix, pk

shop = SQLiteConnection(name="shop", path="shop.db")
house = DuckDBConnection(name="house", path="house.duckdb")
away = PostgresConnection(name="away", url="postgresql://nobody@127.0.0.1:1/none")

@ematix.table(schema="raw")
class People:
    id: Annotated[BigInt, pk()]
    name: Text | None

@ematix.pipeline(target=People, target_connection=house, source_connection=shop, mode="merge")
def people():
    return "SELECT id, name FROM people"

@ematix.pipeline(target=People, target_connection=away, source_connection=shop, mode="merge")
def to_postgres():
    return "SELECT id, name FROM people"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pipelines.py").write_text(PIPELINES)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as sql, sql:
        sql.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)")
        sql.execute("INSERT INTO people VALUES (1, 'Ana'), (2, NULL)")
    return tmp_path


def write(project: Path, text: str) -> None:
    (project / ".ematix-flow.toml").write_text(f"[spark]\n{text}\n")


def refused(cluster: TestCluster, project: Path, name: str = "people", *, code: int = 5, **more: str) -> dict[str, Any]:
    told: dict[str, Any] = cluster.flow("run", name, cwd=project, code=code, **more)
    assert told["hint"]
    assert not (project / "house.duckdb").exists()
    return told


def people(project: Path) -> list[tuple[Any, ...]]:
    import duckdb

    with duckdb.connect(str(project / "house.duckdb"), read_only=True) as house:
        return house.execute("SELECT id, name FROM raw.people ORDER BY id").fetchall()


@pytest.mark.parametrize("where", ["spark://127.0.0.1:1", "sc://127.0.0.1:1/;token=hush-hush"])
def test_a_cluster_that_does_not_answer_is_reported_at_once(tmp_path: Path, project: Path, where: str) -> None:
    nobody = TestCluster(tmp_path / "nobody")
    began = time.monotonic()
    told = refused(nobody, project, EMATIX_FLOW_MASTER=where)
    assert told["error"] == "Unreachable"
    assert "127.0.0.1:1 does not answer: connection refused" in told["message"]
    assert "hush" not in str(told)
    assert time.monotonic() - began < 60


@full
def test_a_spark_connect_server_is_a_cluster_too(tmp_path: Path, project: Path) -> None:
    """A warm engine is such a server; here it is addressed as one that somebody else runs."""
    import json

    engine = TestCluster(tmp_path / "engine")
    engine.environment["EMATIX_FLOW_ENGINE_DIR"] = str(tmp_path / "engines")
    engine.flow("engine", "start", EMATIX_FLOW_ENGINE="auto")
    try:
        (file,) = (tmp_path / "engines").glob("*.json")
        kept = json.loads(file.read_text())
        address = f"sc://localhost:{kept['port']}/;token="
        engine.flow("run", "people", cwd=project, EMATIX_FLOW_MASTER=address + kept["token"])
        assert people(project) == [(1, "Ana"), (2, None)]
        (project / "house.duckdb").unlink()
        told = refused(engine, project, EMATIX_FLOW_MASTER=f"{address}wrong-t0ken")
        assert (told["error"], "wrong-t0ken" in str(told)) == ("PermissionDenied", False)
    finally:
        engine.flow("engine", "stop")


@full
@pytest.mark.parametrize("secret", ['secret = "not-the-s3cret"', ""])
def test_a_process_without_the_secret_is_not_taken_in(cluster: TestCluster, project: Path, secret: str) -> None:
    write(project, f'{secret}\npeers = ["{cluster.environment["EMATIX_FLOW_MASTER"]}"]')
    told = refused(cluster, project, EMATIX_FLOW_CLUSTER_DIR=str(project), EMATIX_FLOW_MASTER="")
    assert told["error"] == "PermissionDenied"
    assert "does not take this process in" in told["message"]
    assert "not-the-s3cret" not in str(told)


@full
def test_a_cluster_without_room_is_waited_for_and_then_reported(cluster: TestCluster, project: Path) -> None:
    write(project, 'wait = 12\n"spark.executor.memory" = "64g"')
    done = cluster.run("run", "people", cwd=project)
    assert done.returncode == 5
    assert "waiting for executors of spark://127.0.0.1" in done.stderr
    assert "gave this run no executor within 12 s" in done.stderr
    assert "spark.executor.memory" in done.stderr
    wait_for(lambda: cluster.flow("cluster", "status")["applications"] == [])


@full
def test_a_package_that_workers_lack_is_named_before_anything_is_loaded(cluster: TestCluster, project: Path) -> None:
    python = bare_python(project / "bare", without=("adbc_driver_postgresql",))
    write(project, f'"spark.pyspark.python" = "{python}"')
    told = refused(cluster, project, "to_postgres")
    assert told["error"] == "ConfigError"
    assert "has no adbc_driver_postgresql in its Python" in told["message"]
    write(project, '"spark.pyspark.python" = "/nowhere/python"')
    assert "the workers have no Python at /nowhere/python" in refused(cluster, project)["message"]


@contextmanager
def blind_worker(cluster: TestCluster, folder: Path) -> Iterator[None]:
    """One more worker, on a machine where this folder is another, empty one: its own mount namespace."""
    import pyspark

    home = Path(pyspark.__file__).parent
    own = cluster.folder / "cluster"
    command = (
        f"mount -t tmpfs none {folder} && exec bash {home}/bin/spark-class org.apache.spark.deploy.worker.Worker "
        f"--host 127.0.0.1 --cores 1 --memory 1g --webui-port 0 --work-dir {own}/blind "
        f"--properties-file {own}/spark.conf {cluster.environment['EMATIX_FLOW_MASTER']}"
    )
    process = subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "bash", "-c", command],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(home)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(lambda: cluster.flow("cluster", "status")["registered"] == 3, 60)
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)
        wait_for(lambda: cluster.flow("cluster", "status")["registered"] == 2, 60)


@full
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="another machine is played by a namespace")
def test_a_folder_that_a_worker_does_not_see_is_refused(cluster: TestCluster, project: Path) -> None:
    stage = project / "stage"
    stage.mkdir()
    with blind_worker(cluster, stage):
        told = refused(cluster, project, EMATIX_FLOW_STAGE_DIR=str(stage))
        assert f"does not see {stage}/ematix-flow-stage of this machine" in told["message"]
        assert "EMATIX_FLOW_STAGE_DIR" in told["hint"]
        elsewhere = project / "shared"
        elsewhere.mkdir()
        write(project, f'stage = "{elsewhere}"')
        cluster.flow("run", "people", cwd=project, EMATIX_FLOW_STAGE_DIR="")
        assert people(project) == [(1, "Ana"), (2, None)]
