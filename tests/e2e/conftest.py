"""Fixtures of the documents' samples: the document, the warehouse it loads into, and a second database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import conftest as servers
from tests.e2e.samples import CUSTOMERS, RAW_TABLES, Database, Page, open_page, set_variables
from tests.e2e.streaming import CLEAN, bucket, fill
from tests.e2e.words import worded
from tests.services.kafka import Kafka
from tests.services.object_stores import S3_ACCESS
from tests.services.server import free_port


@pytest.fixture(scope="module")
def _warehouse(fresh_postgres: str) -> Iterator[Database]:
    found = Database(fresh_postgres)
    yield found
    found.client.close()


@pytest.fixture
def database(_warehouse: Database) -> Database:
    """The warehouse, with fresh raw tables and nothing loaded."""
    _warehouse.run(RAW_TABLES)
    return _warehouse


@pytest.fixture(scope="module")
def raw_database(postgres_url: str) -> Iterator[Database]:
    """Another database on the same server, with a customers table."""
    name = servers._new_name()
    servers._postgres(postgres_url, f"CREATE DATABASE {name}")
    found = Database(servers._with_database(postgres_url, name))
    found.run(CUSTOMERS)
    yield found
    found.client.close()
    servers._postgres(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The engine's session, started with all the jars that the tests of the module need, so that it starts once."""
    from ematix_flow.engine.session.session import spark_session

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMATIX_FLOW_LOGS_DIR", str(tmp_path_factory.mktemp("logs")))
        return spark_session(getattr(request.module, "JARS", {"delta"}))


@pytest.fixture
def page(
    request: pytest.FixtureRequest, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Page]:
    """The document that the test module names, with the variables it mentions."""
    set_variables(monkeypatch, tmp_path, url=database.url)
    yield from open_page(request.module.DOCUMENT, monkeypatch)


@pytest.fixture
def reader(page: Page, kafka: Kafka, database: Database, monkeypatch: pytest.MonkeyPatch) -> Page:
    """The document with a reader's hosts and ports in it, and his variables set."""
    database.run(CLEAN)
    monkeypatch.setenv(worded("RIDE_BUS"), kafka.open)
    page.values |= {
        worded("127.0.0.1:19092"): kafka.open,
        worded("postgres://127.0.0.1/rides_db"): database.url,
        worded("postgres://127.0.0.1/depot"): database.url,
        worded("postgres://127.0.0.1/remembered"): database.url,
        worded("9464"): str(free_port()),
    }
    return page


@pytest.fixture
def archive(reader: Page, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of the bucket that the documents name, which is empty; the keys to it are in the variables they name."""
    for name, value in S3_ACCESS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(worded("CELLAR_KEY"), S3_ACCESS["AWS_ACCESS_KEY_ID"])
    monkeypatch.setenv(worded("CELLAR_SECRET"), S3_ACCESS["AWS_SECRET_ACCESS_KEY"])
    reader.values[worded("https://objects.bikes.test")] = s3_url
    return bucket(s3_url)


@pytest.fixture
def topics(kafka: Kafka) -> Kafka:
    """The broker, whose topic of rides holds three of them."""
    fill(kafka, "rides")
    return kafka
