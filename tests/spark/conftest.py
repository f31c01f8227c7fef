"""The Spark session of these tests, and every engine that runs rendered expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ematix_flow.engine.session.session import spark_session
from tests.spark.engines import DuckDBEngine, Engine, MySQLEngine, PostgresEngine, SparkEngine, SQLiteEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """The engine's own session, asked for again by every module: the engine restarts it when a test needs more jars."""
    session = spark_session()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    return session


@pytest.fixture(scope="module")
def engines(spark: SparkSession, postgres_url: str, fresh_mariadb: str, fresh_mysql8: str) -> list[Engine]:
    """Six engines, each with its own table of inputs."""
    return [
        SparkEngine(spark),
        PostgresEngine(postgres_url),
        MySQLEngine(fresh_mariadb, "mariadb"),
        MySQLEngine(fresh_mysql8, "mysql8"),
        SQLiteEngine(),
        DuckDBEngine(),
    ]
