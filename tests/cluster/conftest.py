"""One two-worker cluster for all tests of this folder, with workers whose Python does not have this product."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.places import TestCluster, bare_python, is_alive, remove


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    """Started once; a test that kills a worker asks for another one."""
    folder = tmp_path_factory.mktemp("cluster")
    made = TestCluster(folder)
    python = bare_python(folder / "bare")
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    made.write_settings(
        f'wait = 60\n"spark.pyspark.python" = "{python}"\n"spark.sql.shuffle.partitions" = 3\n'
        f'"spark.executor.extraJavaOptions" = "{quick}"\n"spark.driver.extraJavaOptions" = "{quick}"'
    )
    made.start()
    yield made
    everybody = [made.status()["pid"], *made.workers()]
    made.stop()
    assert not any(map(is_alive, everybody))
    assert made.status() is None
    remove(folder)
