"""Fixtures for every test: real servers, and an empty database for each test module that asks for one."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import hypothesis
import pytest

from ematix_flow.foundation.cache import cache_home
from ematix_flow.run_log.worker import this_worker
from tests import services
from tests.services.kafka import Kafka
from tests.services.wanted import or_skip

pytest_plugins = ("tests.plugins.selection", "tests.plugins.isolation", "tests.plugins.promises")


def pytest_configure(config: pytest.Config) -> None:
    """The process that runs the tests, or hands them to workers, owns the servers."""
    hypothesis.settings.register_profile("busy machine", deadline=None)
    hypothesis.settings.load_profile("busy machine")
    os.environ.setdefault("EMATIX_FLOW_ENGINE", "local")  # an engine that a developer keeps warm is not under test
    os.environ.setdefault("EMATIX_FLOW_WARM_UP", "0")  # an engine of tests serves a few commands
    # The JVMs of tests are short-lived and share two cores: a second compiler and collector cost more than they save.
    # With one compiler Java reserves 48 MB for compiled code, which a session of many tests fills and compiles again.
    quick = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xmn256m"
    os.environ.setdefault("JDK_JAVA_OPTIONS", quick)
    # Tests with a home of their own would fetch the jars again, start without a class archive and train one.
    os.environ.setdefault("EMATIX_FLOW_CACHE", str(cache_home()))
    if not hasattr(config, "workerinput"):
        services.open_session()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Whoever opened the session stops its servers."""
    if not hasattr(config, "workerinput"):
        services.close_session()


@pytest.fixture(scope="session")
def warm_engine() -> Iterator[dict[str, str]]:
    """The variables with which commands in processes of their own share one engine instead of starting a JVM each."""
    folder = tempfile.mkdtemp(prefix="flow-engine-")  # the path of a socket is short
    variables = {
        "EMATIX_FLOW_ENGINE": "auto", "EMATIX_FLOW_ENGINE_DIR": folder, "EMATIX_FLOW_KEEP_WARM": "1",
        "EMATIX_FLOW_ENGINE_OWNER": this_worker(), "EMATIX_FLOW_DRIVER_MEMORY": "1g",
    }  # fmt: skip
    environment = {**os.environ, **variables, "EMATIX_FLOW_LOGS_DIR": folder}
    command = [sys.executable, "-m", "ematix_flow.cli", "engine"]
    subprocess.run([*command, "start", "--json"], env=environment, check=True, capture_output=True)
    yield variables
    subprocess.run([*command, "stop"], env=environment, check=True, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_url() -> str:
    """A PostgreSQL superuser's URL."""
    return _url_of(services.start_postgres)


@pytest.fixture(scope="session")
def mariadb_url() -> str:
    """A MariaDB user's URL who may do everything."""
    return _url_of(services.start_mariadb)


@pytest.fixture(scope="session")
def mysql8_url() -> str:
    """A MySQL 8.0 user's URL who may do everything."""
    return _url_of(services.start_mysql8)


@pytest.fixture(scope="session")
def kafka() -> Kafka:
    """A Kafka broker, by its doors."""
    return Kafka.of(_url_of(services.start_kafka))


@pytest.fixture(scope="session")
def schema_registry() -> str:
    """The address of a schema registry that speaks Confluent's protocol."""
    return _url_of(services.start_registry)


@pytest.fixture(scope="session")
def rabbitmq_url() -> str:
    """A RabbitMQ user's URL who may do everything."""
    return _url_of(services.start_rabbitmq)


@pytest.fixture(scope="session")
def pubsub_endpoint() -> str:
    """Host and port of a Pub/Sub where nobody logs in."""
    return _url_of(services.start_pubsub)


@pytest.fixture(scope="session")
def kinesis_url() -> str:
    """The endpoint of a Kinesis."""
    return _url_of(services.start_kinesis)


@pytest.fixture(scope="session")
def s3_url() -> str:
    """The endpoint of an S3 server."""
    return _url_of(services.start_s3)


@pytest.fixture(scope="session")
def azure_url() -> str:
    """The endpoint of an Azure Blob Storage."""
    return _url_of(services.start_azure)


@pytest.fixture(scope="session")
def gcs_url() -> str:
    """The endpoint of a Google Cloud Storage."""
    return _url_of(services.start_gcs)


@pytest.fixture(scope="module")
def fresh_postgres(postgres_url: str) -> Iterator[str]:
    """The URL of a new, empty PostgreSQL database, gone after the module."""
    name = _new_name()
    _postgres(postgres_url, f"CREATE DATABASE {name}")
    yield _with_database(postgres_url, name)
    _postgres(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def fresh_mariadb(mariadb_url: str) -> Iterator[str]:
    """The URL of a new, empty MariaDB database, gone after the module."""
    yield from _fresh_mysql(mariadb_url)


@pytest.fixture(scope="module")
def fresh_mysql8(mysql8_url: str) -> Iterator[str]:
    """The URL of a new, empty MySQL 8.0 database, gone after the module."""
    yield from _fresh_mysql(mysql8_url)


def _url_of(start: Callable[[], services.Server]) -> str:
    """A server that this machine lacks skips the test, except where all of them are required."""
    return or_skip(start).url


def _fresh_mysql(url: str) -> Iterator[str]:
    name = _new_name()
    _mysql(url, f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    yield _with_database(url, name)
    _mysql(url, f"DROP DATABASE {name}")


def _new_name() -> str:
    return f"t_{secrets.token_hex(6)}"


def _with_database(url: str, name: str) -> str:
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def _postgres(url: str, statement: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def _mysql(url: str, statement: str) -> None:
    import pymysql

    parts = urlsplit(url)
    with pymysql.connect(
        host=parts.hostname, port=parts.port or 3306, user=parts.username, password=parts.password or ""
    ) as connection:
        connection.cursor().execute(statement)
