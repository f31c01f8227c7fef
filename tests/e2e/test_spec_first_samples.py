"""Every batch sample of the product's 0.1.2 document runs against a real PostgreSQL.

The stored text lost its indentation; documents.unindented gives it back, and changes nothing else.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ematix_flow import KafkaConnection, PostgresConnection, SchemaRegistryConnection, config, connect, get_connection
from tests.e2e import documents
from tests.e2e.documents import Sample
from tests.e2e.samples import Database, Page, succeed

DOCUMENT = "readme-0.1.2.txt"
pytestmark = pytest.mark.skipif(not (documents.FOLDER / DOCUMENT).is_file(), reason=documents.MISSING)
CURRENT = (
    "SELECT customer_id, email, name, updated_at::date::text FROM analytics.customer_dim WHERE is_current "
    "ORDER BY customer_id"
)
LOADED = [
    (1, "ada@example.org", "Ada", "2026-01-01"),
    (2, None, "Bob", "2026-01-02"),
    (3, None, None, "2026-01-03"),
]


def quickstart() -> Sample:
    return documents.unindented(
        DOCUMENT, after="Quickstart 1: declarative Postgres pipeline (v0.1)", first="from typing import Annotated"
    )


def across_databases() -> Sample:
    return documents.unindented(DOCUMENT, after="explicitly:", first="@ematix.pipeline(")


def connections_in_code() -> Sample:
    return documents.unindented(
        DOCUMENT, after="Declaring connections in code (decorator)", first="from ematix_flow import ("
    )


def static_source() -> Sample:
    return documents.unindented(
        DOCUMENT, after="The static form lets you skip writing SELECT * boilerplate:", first="@ematix.pipeline("
    )


def test_the_quickstart_loads_versions_of_customers(page: Page, database: Database) -> None:
    found = page.run_sample(quickstart())
    assert found.sync_customers.spec.loads[0].strategy.keys == ("customer_id",)
    assert found.sync_customers()["rows_inserted"] == 3
    assert database.rows(CURRENT) == LOADED
    database.run("UPDATE raw.customers SET name = 'Bobby', updated_at = '2026-02-01' WHERE customer_id = 2")
    again = found.sync_customers()
    assert (again["rows_inserted"], again["rows_closed"]) == (1, 1)
    versions = database.rows(
        "SELECT name, is_current FROM analytics.customer_dim WHERE customer_id = 2 ORDER BY valid_from"
    )
    assert versions == [("Bob", False), ("Bobby", True)]


def test_a_variable_is_read_when_the_connection_is_used(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    found = page.run_sample(quickstart())
    assert found.warehouse.url == "${EMATIX_FLOW_DSN}"
    monkeypatch.setenv("EMATIX_FLOW_DSN", "postgres://ana:other-geheim@elsewhere/wh")
    assert found.warehouse.resolved().address.host == "elsewhere"
    assert "other-geheim" not in repr(found.warehouse.resolved())


def test_connections_of_both_shapes_are_registered_and_one_is_loaded_into(page: Page, database: Database) -> None:
    found = page.run_sample(quickstart())
    found = page.run_sample(connections_in_code())
    assert isinstance(found.warehouse, PostgresConnection)
    assert isinstance(found.kafka_prod, KafkaConnection)
    assert isinstance(found.sr_prod, SchemaRegistryConnection)
    assert get_connection("warehouse_2") is found.warehouse_2
    assert "kafka-geheim" not in repr(found.kafka_prod.resolved())
    assert found.sync_customers.sync()["rows_inserted"] == 3
    assert database.rows(CURRENT) == LOADED


def test_a_static_source_needs_no_query(page: Page, database: Database) -> None:
    page.run_sample(quickstart())
    assert page.run_sample(static_source()).sync_customers.sync()["rows_inserted"] == 3
    assert database.rows(CURRENT) == LOADED


def test_a_project_file_names_connections(page: Page, tmp_path: Path, database: Database) -> None:
    text = (documents.FOLDER / DOCUMENT).read_text(encoding="utf-8")
    entries = re.findall(r'(\[connections\.\w+\]) (url = "[^"]*")', text)
    assert [header for header, _ in entries] == ["[connections.raw_db]", "[connections.warehouse]"]
    lines = "\n".join(line for entry in entries for line in entry)
    (tmp_path / ".ematix-flow.toml").write_text(lines, encoding="utf-8")
    with connect("warehouse") as conn:
        assert conn.fetch_scalar_int("SELECT count(*) FROM raw.customers") == 3
    assert config.resolve_dsn("raw_db").endswith("://user:raw-geheim@host/raw")
    assert config.list_connections()["raw_db"].count("geheim") == 0


def test_the_printed_commands_run_the_quickstart(page: Page, database: Database, tmp_path: Path) -> None:
    (tmp_path / "my_pipelines.py").write_text(quickstart().text, encoding="utf-8")
    text = (documents.FOLDER / DOCUMENT).read_text(encoding="utf-8")
    printed = re.findall(r"^flow (?:run|preview|validate) --module my_pipelines sync_customers\b", text, re.MULTILINE)
    assert len(printed) == 3
    said = [succeed(*command.split()[1:]) for command in printed]
    assert "sync_customers: ok" in said[2]
    assert database.rows(CURRENT) == LOADED


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_a_source_in_another_database_is_carried_over(
    page: Page, database: Database, raw_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_DSN_RAW_DB", raw_database.url)
    page.run_sample(quickstart())
    result = page.run_sample(across_databases()).sync_customers.sync()
    assert (result["path"], result["rows_inserted"]) == ("cross_db", 2)
    assert database.rows(CURRENT) == LOADED[:2]
