"""Runs as Spark applications: spark-submit is Spark's own, the master is this machine's or a standalone one."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ematix_flow.declare import registry
from ematix_flow.engine.session import jars
from ematix_flow.executors import DispatchError, DispatchSpec, SparkSubmitExecutor, executor_from_url
from ematix_flow.executors.protocol import DispatchRefused
from ematix_flow.executors.submission import SparkApplication, SparkSubmission, jar_sets, spark_home
from ematix_flow.run_log.urls import from_url
from tests.cluster.places import TestCluster, command_lines, is_alive, remove
from tests.executors.sample import PEOPLE, await_end, eventually, facts_in, people_in, spec_of

QUICK = "conf.spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1%20-XX:%2BUseSerialGC&conf.spark.driver.memory=1g"


def local(more: str = "") -> SparkSubmitExecutor:
    made = executor_from_url(f"spark-submit://local[1]?{QUICK}{more}")
    assert isinstance(made, SparkSubmitExecutor)
    return made


def left_over() -> set[str]:
    import tempfile

    return {path.name for path in Path(tempfile.gettempdir()).glob("ematix-flow-submission-*")}


@pytest.mark.slow
def test_the_worker_is_the_driver_of_the_application(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_MASTER", "local[2]")  # the address of the executor says more
    before = left_over()
    executor = local("&conf.spark.sql.shuffle.partitions=7")
    handle = executor.dispatch(spec_of("facts", project))
    assert executor.has_ended(handle) is False
    await_end(executor, handle)
    told = facts_in(project)
    assert (told["master"], told["application"]) == ("local[1]", "flow facts")
    assert (told["partitions"], told["zone"]) == ("7", "UTC")
    assert told["task"] != told["driver"]
    (run,), _ = from_url(str(project / "run_log.db")).list_runs(pipeline="facts")
    assert (run.status, run.extras["worker"].split(":")[1]) == ("succeeded", told["driver"])
    assert left_over() == before


@pytest.mark.full
def test_rows_go_from_sqlite_to_delta_with_the_jars_that_come_along(project: Path) -> None:
    import deltalake

    executor = local()
    handle = executor.dispatch(spec_of("people_in_delta", project))
    await_end(executor, handle)
    rows = deltalake.DeltaTable(project / "lake" / "raw" / "people").to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["name"]) for row in rows) == PEOPLE


def test_a_cancelled_worker_ends_and_its_jvm_with_it(project: Path) -> None:
    before = left_over()
    executor = local()
    handle = executor.dispatch(spec_of("asleep", project))
    eventually(lambda: (project / "asleep").exists())
    driver = int((project / "asleep").read_text())
    submitted: Any = handle.ref
    assert is_alive(driver)
    assert stat.S_IMODE(submitted.folder.stat().st_mode) == 0o700
    assert [path.name for path in submitted.folder.iterdir()] == ["pid"]  # the settings are read, and gone
    executor.cancel(handle)
    await_end(executor, handle, seconds=60)
    assert not is_alive(driver)
    assert not is_alive(submitted.process.pid)
    assert left_over() == before
    executor.cancel(handle)


@pytest.mark.full
def test_a_worker_that_is_cancelled_before_its_driver_runs_ends_as_well(project: Path) -> None:
    executor = local()
    handle = executor.dispatch(spec_of("asleep", project))
    executor.cancel(handle)
    await_end(executor, handle, seconds=60)
    assert not (project / "asleep").exists()


def test_a_master_that_does_not_answer_is_an_error_at_once(project: Path) -> None:
    before = left_over()
    with pytest.raises(
        DispatchError, match=r"people was not submitted: the cluster at spark://127\.0\.0\.1:9"
    ) as caught:
        executor_from_url("spark-submit://spark://127.0.0.1:9").dispatch(spec_of("people", project))
    assert caught.value.retryable
    assert left_over() == before


# -- what is handed to spark-submit


def submission(application: SparkApplication, folder: Path, **more: Any) -> SparkSubmission:
    return application.submission(DispatchSpec("people", "pipelines", run_log_url="log.db", **more), folder)


def option(made: SparkSubmission, name: str) -> str:
    return made.words[made.words.index(name) + 1]


def test_a_secret_setting_goes_by_a_file_that_only_this_user_can_read(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_PASSWORD", "hunter22-store")
    application = SparkApplication("local[1]", conf={"spark.ssl.keyStorePassword": "${STORE_PASSWORD}"})
    made = submission(application, project)
    assert "hunter22-store" not in repr(made) + " ".join(made.words)
    assert "spark.ssl.keyStorePassword=hunter22-store\n" in made.settings


def test_the_users_settings_win_over_the_files_and_both_over_ours(project: Path) -> None:
    (project / ".ematix-flow.toml").write_text(
        '[spark]\n"spark.executor.memory" = "3g"\n"spark.sql.ansi.enabled" = false\n'
    )
    made = submission(SparkApplication("local[1]", conf={"spark.executor.memory": "2g"}), project)
    assert "spark.executor.memory=2g\n" in made.settings
    assert "spark.sql.ansi.enabled=false\n" in made.settings
    assert "spark.sql.session.timeZone=UTC\n" in made.settings
    assert "spark.master" not in made.settings


def test_a_driver_inside_the_cluster_gets_what_is_true_there(project: Path) -> None:
    application = SparkApplication("yarn", "cluster", {"spark.sql.extensions": "my.Extension"}, ("my_pipelines.zip",))
    made = submission(application, project)
    assert (option(made, "--master"), option(made, "--deploy-mode")) == ("yarn", "cluster")
    assert option(made, "--py-files").split(",")[1] == "my_pipelines.zip"
    assert "ematix_flow-" in option(made, "--py-files").split(",")[0]
    known = jars.read_lock()
    assert len(option(made, "--jars").split(",")) == len(known["delta"]) + len(known["s3a"])
    assert "spark.yarn.appMasterEnv.EMATIX_FLOW_RUN_LOG_URL=log.db\n" in made.settings
    assert "DeltaSparkSessionExtension,my.Extension" in made.settings
    assert "spark.driver.extraJavaOptions=-Duser.timezone=UTC\n" in made.settings
    assert str(Path.home()) not in made.settings
    described = next(word for word in made.words if word.startswith("{"))
    assert json.loads(described)["session_first"] is True
    with pytest.raises(DispatchRefused, match="give the driver that variable"):
        submission(application, project, env={"X": "mysql://ana:hunter22@db"})


def test_only_the_jars_that_a_known_pipeline_needs_come_along(project: Path) -> None:
    from ematix_flow.cli.loading import module

    assert jar_sets("people") == {"delta", "s3a"}
    module.load_module("pipelines.py")
    assert set(registry.pipelines()) >= {"people", "people_in_delta"}
    assert jar_sets("people") == set()
    assert jar_sets("people_in_delta") == {"delta"}


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("spark-submit://", "names no master"),
        ("spark-submit://sc://host:15002", "sc:// is none"),
        ("spark-submit://spark://host:7077?deploy-mode=cluster", "runs no Python drivers"),
        ("spark-submit://yarn?deploy-mode=clustr", "did you mean 'cluster'"),
        ("spark-submit://yarn?deploy=cluster", "did you mean 'deploy-mode'"),
        ("spark-submit://yarn?conf.park.x=1", "no parameter"),
    ],
)
def test_an_address_that_cannot_work_is_refused(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        executor_from_url(url)


def test_a_spark_home_without_spark_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (spark_home() / "jars").is_dir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(DispatchRefused, match="there is no spark-submit"):
        executor_from_url("spark-submit://yarn")


# -- on a cluster


@pytest.fixture
def standalone(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestCluster]:
    """One worker with a secret, started by `flow cluster start`."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    made = TestCluster(folder)
    made.start(workers=1)
    for name in ("EMATIX_FLOW_CLUSTER_DIR", "EMATIX_FLOW_STAGE_DIR", "EMATIX_FLOW_DRIVER_MEMORY"):
        monkeypatch.setenv(name, made.environment[name])
    yield made
    made.stop()
    remove(folder)


@pytest.mark.full("a cluster for one load")
def test_the_application_runs_on_a_standalone_cluster_that_asks_for_a_secret(
    standalone: TestCluster, project: Path
) -> None:
    address = standalone.status()["address"]
    executor = executor_from_url(f"spark-submit://{address}?conf.spark.executor.memory=512m")
    handle = executor.dispatch(spec_of("facts", project))
    secret, shown = standalone.secret(), False
    while not executor.has_ended(handle):
        shown = shown or any(secret in line for line in command_lines())
        time.sleep(0.2)
    assert not shown
    told = facts_in(project)
    assert (told["master"], told["application"]) == (address, "flow facts")
    handle = executor.dispatch(spec_of("people", project))
    await_end(executor, handle)
    assert people_in(project) == PEOPLE
