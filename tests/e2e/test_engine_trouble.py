"""What happens to an engine and to its commands: suspended, killed, no disk, no shared memory, no Java, another machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ematix_flow.foundation.processes import descendants
from tests.e2e.warm_project import Project, awaited
from tests.harness.arrivals import put_whole

KEPT = {"EMATIX_FLOW_KEEP_WARM": "1"}
may_mount = pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0,
    reason="a full disk needs the right to mount one; run it as root",
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    made = Project(tmp_path_factory.mktemp("trouble"))
    yield made
    made.flow("engine", "stop")


@pytest.fixture
def engine(project: Project) -> int:
    """The process of an engine that runs."""
    found: int = project.flow("engine", "start")["pid"]
    return found


@pytest.mark.full("an engine that is killed in a run is tested by default")
def test_a_process_whose_engine_is_killed_between_two_runs_joins_another(project: Project, engine: int) -> None:
    script = (
        "import json, os, signal, pipelines\n"
        "first = pipelines.people.sync()\n"
        f"os.kill({engine}, signal.SIGKILL)\n"
        "second = pipelines.people.sync()\n"
        "print(json.dumps([run.cost.session['pid'] for run in (first, second)]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=project.folder, env={**project.environment, **KEPT},
                          capture_output=True, text=True, timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout.splitlines()[-1])
    assert first == engine
    assert second == project.engines()[0]["pid"] != engine


def test_a_script_runs_a_stream_after_a_load_on_the_engine(project: Project, engine: int) -> None:
    """The driver of a stream is its own process, so the script leaves the engine."""
    letters = project.folder / "letters"
    letters.mkdir(exist_ok=True)
    put_whole(letters / "one.jsonl", '{"id": 1}\n{"id": 2}\n')
    script = (
        "import json, pipelines\n"
        "from ematix_flow import ObjectStoreLocalConnection, run_streaming_pipeline, spark_session\n"
        "first = pipelines.people.sync()\n"
        "source = ObjectStoreLocalConnection(name='letters', path='.', format='json_lines')\n"
        "run_streaming_pipeline(name='letters', source=source, source_query='letters', target=pipelines.lake, target_prefix='raw/letters',\n"
        "                       checkpoint='checkpoint', once=True)\n"
        "again = pipelines.people.sync()\n"
        "ids = [row['id'] for row in spark_session().read.parquet('lake/raw/letters').orderBy('id').collect()]\n"
        "print(json.dumps([first.cost.session['kind'], again.cost.session['kind'], ids]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=project.folder, env={**project.environment, **KEPT},
                          capture_output=True, text=True, timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == ["warm", "local", [1, 2]]


def test_a_run_whose_engine_is_killed_is_done_by_another(project: Project, engine: int) -> None:
    (project.folder / "asked").unlink(missing_ok=True)
    running = subprocess.Popen(project.command("run", "slow", "--json"), cwd=project.folder,
                               env={**project.environment, **KEPT}, stdout=subprocess.PIPE, text=True)  # fmt: skip
    awaited((project.folder / "asked").exists)
    os.kill(engine, signal.SIGKILL)
    out, _ = running.communicate(timeout=300)
    assert running.returncode == 0, out
    (result,) = json.loads(out)["results"]
    assert (result["status"], result["targets"][0]["rows_inserted"]) == ("success", 40)
    assert result["session"]["pid"] == project.engines()[0]["pid"] != engine
    runs = project.flow("runs", "list", "--pipeline", "slow")["runs"]
    assert [run["status"] for run in runs if run["run_id"] == result["run_id"]] == ["succeeded"]


def test_an_engine_whose_jvm_is_killed_ends_and_leaves_no_record(project: Project, engine: int) -> None:
    (java,) = _java_of(engine)
    os.kill(java, signal.SIGKILL)
    assert project.session()["kind"] == "local"  # not at a terminal: it is not replaced
    awaited(lambda: not Path(f"/proc/{engine}").exists())
    assert [file for file in (project.folder / "engine").iterdir() if file.suffix in (".json", ".users", ".sock")] == []


def test_an_engine_whose_jvm_hangs_is_replaced_and_ended(project: Project, engine: int) -> None:
    from ematix_flow.engine.warm.records import answer_timeout

    (java,) = _java_of(engine)
    os.kill(java, signal.SIGSTOP)
    began = time.monotonic()
    assert project.engines() == []
    # Besides the command itself; a busy machine is given more time by its load.
    assert time.monotonic() - began < 1 + 2 * answer_timeout() + 10
    replaced = project.session(**KEPT)
    assert (replaced["kind"], replaced["pid"] == engine) == ("warm", False)
    awaited(lambda: not Path(f"/proc/{java}").exists() and not Path(f"/proc/{engine}").exists(), 10)


def test_an_engine_that_is_suspended_while_it_starts_is_replaced(project: Project) -> None:
    project.flow("engine", "stop")
    starting = subprocess.Popen(project.command("engine", "start"), cwd=project.folder, env=project.environment)
    half = _half_started(project)
    os.kill(half, signal.SIGSTOP)
    starting.kill()  # nothing but the lock tells of the half-started one now
    starting.wait()
    started = project.flow("engine", "start")
    assert started["started"]
    assert started["pid"] != half
    awaited(lambda: not Path(f"/proc/{half}").exists(), 10)
    assert [found["pid"] for found in project.engines()] == [started["pid"]]


@pytest.mark.full("a stopped engine is tested by default")
def test_a_run_that_slept_with_its_engine_goes_on(project: Project, engine: int) -> None:
    """As a laptop that is closed and opened again."""
    (project.folder / "asked").unlink(missing_ok=True)
    running = subprocess.Popen(project.command("run", "slow", "--json"), cwd=project.folder, env=project.environment,
                               stdout=subprocess.PIPE, text=True)  # fmt: skip
    awaited((project.folder / "asked").exists)
    asleep = [running.pid, engine, *descendants([running.pid, engine])]
    for pid in asleep:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(3)
    for pid in reversed(asleep):
        os.kill(pid, signal.SIGCONT)
    out, _ = running.communicate(timeout=120)
    (result,) = json.loads(out)["results"]
    assert (result["status"], result["targets"][0]["rows_inserted"]) == ("success", 40)
    assert result["session"]["pid"] == engine


def test_an_engine_of_another_machine_that_shares_the_home_is_left_alone(project: Project, engine: int) -> None:
    """Its process has a number that means another process here."""
    (file,) = (project.folder / "engine").glob("*.json")
    bystander = subprocess.Popen(["sleep", "600"])
    foreign = file.with_name("ffffffffffff-abcdef.json")
    foreign.write_text(json.dumps({**json.loads(file.read_text()), "worker": f"elsewhere:{bystander.pid}:1"}))
    try:
        assert [found["pid"] for found in project.engines()] == [engine]
        assert project.flow("engine", "stop")["stopped"] == [engine]
        assert bystander.poll() is None
        assert foreign.exists()
    finally:
        bystander.kill()
        bystander.wait()
        foreign.unlink()


def test_an_engine_without_the_jars_of_a_run_is_not_joined(project: Project, engine: int) -> None:
    (file,) = (project.folder / "engine").glob("*.json")
    kept = file.read_text()
    asked = (
        "from ematix_flow.engine import warm; print(warm.join_engine({'delta'}, {}, keep=warm.keep_warm()) is not None)"
    )
    joined = []
    for jars in (json.loads(kept)["jars"], []):
        file.write_text(json.dumps({**json.loads(kept), "jars": jars}))
        done = subprocess.run([sys.executable, "-c", asked], env=project.environment, cwd=project.folder,
                              capture_output=True, text=True, timeout=120)  # fmt: skip
        joined.append(done.stdout.strip())
    file.write_text(kept)
    assert joined == ["True", "False"]


@pytest.mark.full("a disk that is full elsewhere is tested by default")
@may_mount
def test_a_full_disk_below_the_engine_folder_fails_no_run(tmp_path: Path) -> None:
    made = Project(tmp_path)
    script = (
        "mkdir -p engine && mount -t tmpfs -o size=64k tmpfs engine && flow engine start --json > started.json\n"
        "dd if=/dev/zero of=engine/filler bs=1k 2> /dev/null\n"
        "flow run people --json > warm.json; flow engine stop --json > stopped.json\n"
        "dd if=/dev/zero of=engine/filler bs=1k 2> /dev/null\n"
        "EMATIX_FLOW_KEEP_WARM=1 flow run people --json > cold.json"
    )
    _in_a_namespace(made, script)
    started, stopped, warm, cold = (_read(tmp_path / f"{name}.json") for name in ("started", "stopped", "warm", "cold"))
    assert stopped["stopped"] == [started["pid"]]
    assert _outcome(warm) == ("success", "warm")
    assert _outcome(cold) == ("success", "local")


@may_mount
@pytest.mark.full("two engines more")
def test_without_shared_memory_and_with_a_home_that_cannot_be_written_runs_succeed(tmp_path: Path) -> None:
    made = Project(tmp_path)
    script = (
        "mkdir home && mount -t tmpfs -o ro,size=4k tmpfs /dev/shm && mount -t tmpfs -o ro,size=4k tmpfs home\n"
        "EMATIX_FLOW_KEEP_WARM=1 flow run people --json > warm.json; flow engine stop --json > stopped.json\n"
        "unset EMATIX_FLOW_ENGINE_DIR EMATIX_FLOW_LOGS_DIR; export HOME=$PWD/home\n"
        "EMATIX_FLOW_KEEP_WARM=1 flow run people --json > cold.json"
    )
    _in_a_namespace(made, script)
    assert _outcome(_read(tmp_path / "warm.json")) == ("success", "warm")
    assert _outcome(_read(tmp_path / "cold.json")) == ("success", "local")


@may_mount
@pytest.mark.parametrize("release", [None, "11.0.2"])
def test_without_a_java_that_runs_spark_a_sentence_says_so(tmp_path: Path, release: str | None) -> None:
    made = Project(tmp_path)
    if release is not None:
        home = tmp_path / "old"
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
        (home / "bin" / "java").chmod(0o755)
        (home / "release").write_text(f'JAVA_VERSION="{release}"\n')
        made.environment["JAVA_HOME"] = str(home)
    script = (
        'for folder in /usr/lib/jvm /usr/java /opt/java; do [ -d "$folder" ] && mount -t tmpfs tmpfs "$folder"; done\n'
        "EMATIX_FLOW_KEEP_WARM=1 flow run people --json > failed.json 2> failed.txt; echo $? > code"
    )
    _in_a_namespace(made, script)
    failed = _read(tmp_path / "failed.json")
    told = json.dumps(failed)
    assert (tmp_path / "code").read_text().strip() != "0"
    assert "Spark needs Java 17 to 23" in told
    assert ("Java 11" in told) == (release is not None)
    assert "Traceback" not in told + (tmp_path / "failed.txt").read_text()


def _in_a_namespace(project: Project, script: str) -> None:
    """Run a script whose mounts no other process sees; what it started must be gone when it ends."""
    command = f'flow() {{ "{sys.executable}" -m ematix_flow.cli "$@"; }}\n{script}'
    done = subprocess.run(["unshare", "-m", "sh", "-c", command], cwd=project.folder, env=project.environment,
                          capture_output=True, text=True, timeout=300)  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr


def _read(file: Path) -> Any:
    return json.loads(file.read_text())


def _outcome(told: Any) -> tuple[str, str]:
    (result,) = told["results"]
    return result["status"], result["session"]["kind"]


def _half_started(project: Project) -> int:
    """Return the process of an engine that has been started and has no record yet."""
    found: list[int] = []

    def look() -> bool:
        for file in (project.folder / "engine").glob("*.start"):
            words = file.read_text().split(":")
            if len(words) == 3 and Path(f"/proc/{words[1]}").exists():
                found.append(int(words[1]))
        return bool(found)

    awaited(look)
    return found[0]


def _java_of(engine: int) -> list[int]:
    return [pid for pid in descendants([engine]) if Path(f"/proc/{pid}/comm").read_text().strip() == "java"]
