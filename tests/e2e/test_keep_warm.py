"""The engine that a command at a terminal leaves running: who starts it, who joins it, and what ends it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import ematix_flow
from ematix_flow.foundation.processes import is_stopped
from tests.e2e.warm_project import Project, awaited


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    made = Project(tmp_path_factory.mktemp("keep_warm"))
    yield made
    made.flow("engine", "stop")


@pytest.fixture(scope="module")
def _first_engine(project: Project) -> None:
    """The first run at a terminal leaves an engine behind."""
    assert project.session()["kind"] == "local"
    assert project.engines() == []  # nothing stays behind a command that is not at a terminal
    code, printed = project.at_a_terminal("run", "people")
    assert code == 0, printed
    (found,) = project.engines()
    assert f"engine {found['pid']} stays ready for 15 min" in printed
    assert "flow engine stop" in printed
    assert "EMATIX_FLOW_KEEP_WARM=0" in printed


@pytest.fixture
def engine(project: Project, _first_engine: None) -> int:
    """The process of the one engine that runs; another one where the test before has ended or replaced it."""
    running = project.engines()
    if len(running) != 1:
        project.flow("engine", "stop")
        project.flow("engine", "start")
        running = project.engines()
    return int(running[0]["pid"])


@pytest.mark.slow
def test_a_run_at_a_terminal_leaves_an_engine_that_every_later_command_joins(project: Project, engine: int) -> None:
    again = project.session()
    assert (again["kind"], again["pid"], again["how"]) == ("warm", engine, "joined")
    code, printed = project.at_a_terminal("run", "people")
    assert code == 0
    assert "stays ready" not in printed  # said once, by the command that started it
    assert project.flow("preview", "people")["targets"][0]["lane"] == "arrow"
    before = project.sessions_started()
    assert project.flow("dry-run", "people")["results"][0]["status"] == "dry_run"
    assert project.flow("validate", "people")["ok"]
    assert project.flow("transform", "run", "counted")["metrics"] == {"people": 2}
    assert project.flow("backfill", "visits", "--from", "2026-01-01", "--to", "2026-01-03")["rows"] == 2
    assert project.sessions_started() == before
    assert [found["pid"] for found in project.engines()] == [engine]


def test_status_shows_memory_and_its_bound(project: Project, engine: int) -> None:
    (found,) = project.engines()
    assert found["heap_limit"] == "1g"
    assert 200e6 < found["memory_bytes"] < 4e9
    assert found["ends_after_idle_seconds"] == 900


def test_files_of_an_engine_are_for_its_user_only(project: Project, engine: int) -> None:
    folder = project.folder / "engine"
    project.session()  # a client makes the file that clients lock
    assert folder.stat().st_mode & 0o077 == 0
    files = [file for file in folder.iterdir() if file.suffix in (".json", ".sock", ".users", ".log", ".start")]
    assert {".json", ".users"} <= {file.suffix for file in files}
    assert [file.name for file in files if file.stat().st_mode & 0o077] == []


def test_runs_at_the_same_time_share_the_engine_in_sessions_of_their_own(project: Project, engine: int) -> None:
    running = [subprocess.Popen(project.command("preview", "people", "--rows", "2", "--json"), cwd=project.folder,
                                env=project.environment, stdout=subprocess.PIPE, text=True)
               for _ in range(4)]  # fmt: skip
    shown = [json.loads(process.communicate(timeout=120)[0])["sample"] for process in running]
    assert shown == [[[1, "Ana"], [2, None]]] * 4
    assert [found["pid"] for found in project.engines()] == [engine]


def test_a_command_from_another_folder_finds_its_own_files(project: Project, engine: int, tmp_path: Path) -> None:
    other = Project(tmp_path)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as sql, sql:
        sql.execute("UPDATE people SET name = 'Bo' WHERE id = 1")
    shared = {"EMATIX_FLOW_ENGINE_DIR": str(project.folder / "engine"), "HOME": str(project.folder)}
    assert other.session(**shared)["pid"] == engine
    import pyarrow.parquet as pq

    found = pq.read_table(tmp_path / "lake" / "raw" / "people", columns=["id", "name"]).to_pylist()
    assert sorted(row["name"] or "" for row in found) == ["", "Bo"]


def test_another_configuration_or_version_does_not_join(project: Project, engine: int, tmp_path: Path) -> None:
    (project.folder / ".ematix-flow.toml").write_text('[spark]\nspark.sql.shuffle.partitions = "3"\n')
    try:
        assert project.session()["kind"] == "local"
    finally:
        (project.folder / ".ematix-flow.toml").unlink()
    assert project.session(AWS_PROFILE="other")["kind"] == "local"
    shutil.copytree(Path(ematix_flow.__file__).parent, tmp_path / "ematix_flow")  # another version
    assert project.session(PYTHONPATH=str(tmp_path))["kind"] == "local"
    assert project.session()["pid"] == engine


def test_the_file_of_a_project_decides_before_the_terminal(project: Project, engine: int) -> None:
    (project.folder / ".ematix-flow.toml").write_text('[engine]\nkeep_warm = true\nidle = "soon"\n')
    try:
        failed = project.flow("run", "people", code=5)
        assert "idle is not a duration" in failed["message"]
    finally:
        (project.folder / ".ematix-flow.toml").unlink()


@pytest.mark.full("a JVM that hangs is tested by default")
def test_a_stopped_engine_is_noticed_and_the_run_goes_on(project: Project, engine: int) -> None:
    everything = [engine, *_descendants(engine)]
    for pid in everything:
        os.kill(pid, signal.SIGSTOP)
    try:
        awaited(lambda: all(map(is_stopped, everything)))  # a busy process answers until the signal reaches it
        assert [found["alive"] for found in project.flow("engine", "status")] == [False]
        assert project.session()["kind"] == "local"  # nothing is started here: this is no terminal
        replaced = project.session(EMATIX_FLOW_KEEP_WARM="1")
        assert replaced["kind"] == "warm"
        assert replaced["pid"] != engine
        assert [found["pid"] for found in project.engines()] == [replaced["pid"]]
    finally:
        for pid in everything:
            _signal(pid, signal.SIGCONT)
    awaited(lambda: not Path(f"/proc/{engine}").exists())  # it was taken out of the list, and ends


@pytest.mark.full
def test_a_killed_engine_is_replaced(project: Project, engine: int) -> None:
    (found,) = project.engines()
    os.kill(found["pid"], signal.SIGKILL)
    replaced = project.session(EMATIX_FLOW_KEEP_WARM="1")
    assert (replaced["kind"], replaced["pid"] == found["pid"]) == ("warm", False)
    assert len(project.engines()) == 1


def test_commands_that_start_at_once_create_one_engine(project: Project, engine: int) -> None:
    project.flow("engine", "stop")
    running = [subprocess.Popen(project.command("preview", "people", "--rows", "1", "--json"), cwd=project.folder,
                                env={**project.environment, "EMATIX_FLOW_KEEP_WARM": "1"}, stdout=subprocess.PIPE, text=True)
               for _ in range(3)]  # fmt: skip
    assert [json.loads(process.communicate(timeout=240)[0])["sample"] for process in running] == [[[1, "Ana"]]] * 3
    assert len(project.engines()) == 1


def test_an_engine_ends_after_its_idle_time(project: Project, engine: int) -> None:
    project.flow("engine", "stop")
    before = _files(project)  # an engine that was killed leaves its log for a day
    started = project.flow("engine", "start", "--idle", "3s")
    awaited(lambda: not Path(f"/proc/{started['pid']}").exists())
    assert project.flow("engine", "status") == []
    assert _files(project) <= before


@pytest.mark.full
def test_an_engine_ends_with_its_owner_and_with_its_installation(project: Project, engine: int, tmp_path: Path) -> None:
    from ematix_flow.run_log.worker import worker_of

    own = tmp_path / "own" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "own")], check=True)
    (site,) = Path(sys.prefix).glob("lib/python*/site-packages")
    inherited = os.pathsep.join(
        [*os.environ.get("PYTHONPATH", "").split(os.pathsep), str(site), str(Path("src").resolve())]
    )
    owner = subprocess.Popen(["sleep", "600"])
    ran = subprocess.run(
        project.command("run", "people", "--json", python=str(own)), cwd=project.folder, capture_output=True, text=True,
        env={**project.environment, "EMATIX_FLOW_ENGINE_OWNER": worker_of(owner.pid), "PYTHONPATH": inherited},
        timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    first = json.loads(ran.stdout)["results"][0]["session"]
    assert first["kind"] == "warm"
    owner.kill()
    owner.wait()
    awaited(lambda: not Path(f"/proc/{first['pid']}").exists())
    again = subprocess.run(
        project.command("engine", "start", "--json", python=str(own)), cwd=project.folder, capture_output=True, text=True,
        env={**project.environment, "PYTHONPATH": inherited}, timeout=300,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    second = json.loads(again.stdout)["pid"]
    shutil.rmtree(tmp_path / "own")
    awaited(lambda: not Path(f"/proc/{second}").exists())


def test_where_no_engine_can_be_kept_the_run_does_without(project: Project, engine: int) -> None:
    assert project.session(EMATIX_FLOW_KEEP_WARM="1", EMATIX_FLOW_ENGINE_DIR="/dev/null/engine")["kind"] == "local"
    assert project.flow("run", "people", code=5, EMATIX_FLOW_KEEP_WARM="perhaps")["error"] == "ConfigError"


def _descendants(pid: int) -> list[int]:
    from ematix_flow.foundation.processes import descendants

    return descendants([pid])


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _files(project: Project) -> set[str]:
    """Return the files of engines, without the locks of those who start one."""
    return {file.name for file in (project.folder / "engine").iterdir() if file.suffix != ".start"}
