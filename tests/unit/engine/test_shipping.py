"""What travels to a cluster: this package as a zip, settings without their secrets."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ematix_flow.engine.cluster import shipping
from ematix_flow.engine.session import jvm_environment


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_CACHE", str(tmp_path / "cache"))


def test_the_package_can_be_imported_from_its_zip_alone(tmp_path: Path) -> None:
    archive = shipping.package_zip()
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import ematix_flow.dataplane.task_errors as found;"
        "print(found.__file__); print(type(found.__loader__).__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", code, str(archive)], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stdout.splitlines() == [f"{archive}/ematix_flow/dataplane/task_errors.pyc", "zipimporter"]


def test_the_zip_is_made_once_and_holds_no_leftovers() -> None:
    archive = shipping.package_zip()
    made = archive.stat().st_mtime_ns
    assert shipping.package_zip() == archive
    assert archive.stat().st_mtime_ns == made
    names = zipfile.ZipFile(archive).namelist()
    assert "ematix_flow/__init__.py" in names
    assert not [name for name in names if "__pycache__" in name]


def test_secrets_reach_the_jvm_by_a_file_that_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)  # another test of this process may have a JVM
    given = {"spark.authenticate.secret": "a b\\c=é", "spark.ssl.keyPassword": "x", "spark.executor.memory": "1g"}
    with jvm_environment.without_secrets(given) as shown:
        assert shown == {"spark.executor.memory": "1g"}
        words = os.environ["PYSPARK_SUBMIT_ARGS"].split()
        assert (words[0], words[-1]) == ("--properties-file", "pyspark-shell")
        file = Path(words[1])
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.read_text() == "spark.authenticate.secret=a\\u0020b\\\\c=\\u00e9\nspark.ssl.keyPassword=x\n"
    assert not file.exists()
    assert "PYSPARK_SUBMIT_ARGS" not in os.environ


def test_settings_without_secrets_need_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--verbose pyspark-shell")
    with jvm_environment.without_secrets({"spark.executor.memory": "1g"}) as shown:
        assert shown == {"spark.executor.memory": "1g"}
        assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--verbose pyspark-shell"


def test_the_environment_of_one_start_does_not_reach_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.delenv(name, raising=False)
    jvm_environment.set_environment({"spark.master": "local[*]"})
    assert (os.environ["SPARK_LOCAL_IP"], os.environ["PYSPARK_PYTHON"]) == ("127.0.0.1", sys.executable)
    jvm_environment.set_environment({"spark.master": "spark://a:7077", "spark.pyspark.python": "./env/bin/python"})
    assert os.environ["PYSPARK_PYTHON"] == "./env/bin/python"
    assert "SPARK_LOCAL_IP" not in os.environ
    jvm_environment.set_environment({"spark.master": "local[*]"})
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
