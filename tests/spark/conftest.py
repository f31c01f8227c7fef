"""The Spark session of these tests: the engine's own, one for each test process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ematix_flow.engine.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """Asked for again by every module, because the engine restarts its session when a test needs more jars."""
    session = spark_session()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    return session
