"""Every batch sample of the product's 0.1.2 document, or of its twin, runs against a real PostgreSQL.

The stored text of the document lost its indentation; documents.unindented gives it back, and changes nothing else.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ematix_flow import KafkaConnection, PostgresConnection, SchemaRegistryConnection, config, connect, get_connection
from tests.e2e import documents
from tests.e2e.documents import early
from tests.e2e.names import IN_CODE, QUICKSTART, STATIC_SOURCE, TWO_DATABASES
from tests.e2e.samples import MODULE, Database, Page, succeed
from tests.e2e.words import worded

DOCUMENT = documents.FIRST
CURRENT = (
    "SELECT member_id, mail, nick, changed_at::date::text FROM reporting.member_card WHERE is_current "
    "ORDER BY member_id"
)
LOADED = [
    (1, "ada@example.org", "Ada", "2026-01-01"),
    (2, None, "Bob", "2026-01-02"),
    (3, None, None, "2026-01-03"),
]


def test_the_quickstart_loads_versions_of_customers(page: Page, database: Database) -> None:
    found = page.run_sample(early(QUICKSTART))
    assert found.renew_members.spec.loads[0].strategy.keys == (worded("member_id"),)
    assert found.renew_members()["rows_inserted"] == 3
    assert database.rows(CURRENT) == LOADED
    database.run("UPDATE intake.members SET nick = 'Bobby', changed_at = '2026-02-01' WHERE member_id = 2")
    again = found.renew_members()
    assert (again["rows_inserted"], again["rows_closed"]) == (1, 1)
    versions = database.rows(
        "SELECT nick, is_current FROM reporting.member_card WHERE member_id = 2 ORDER BY valid_from"
    )
    assert versions == [("Bob", False), ("Bobby", True)]


def test_a_variable_is_read_when_the_connection_is_used(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    found = page.run_sample(early(QUICKSTART))
    assert found.depot.url == "${EMATIX_FLOW_DSN}"
    monkeypatch.setenv("EMATIX_FLOW_DSN", "postgres://ana:other-geheim@elsewhere/wh")
    assert found.depot.resolved().address.host == "elsewhere"
    assert "other-geheim" not in repr(found.depot.resolved())


def test_connections_of_both_shapes_are_registered_and_one_is_loaded_into(page: Page, database: Database) -> None:
    found = page.run_sample(early(QUICKSTART))
    found = page.run_sample(early(IN_CODE))
    assert isinstance(found.depot, PostgresConnection)
    assert isinstance(found.ride_bus, KafkaConnection)
    assert isinstance(found.ride_shapes, SchemaRegistryConnection)
    assert get_connection(worded("depot_two")) is found.depot_two
    assert "kafka-geheim" not in repr(found.ride_bus.resolved())
    assert found.renew_members.sync()["rows_inserted"] == 3
    assert database.rows(CURRENT) == LOADED


def test_a_static_source_needs_no_query(page: Page, database: Database) -> None:
    page.run_sample(early(QUICKSTART))
    assert page.run_sample(early(STATIC_SOURCE)).renew_members.sync()["rows_inserted"] == 3
    assert database.rows(CURRENT) == LOADED


def test_a_project_file_names_connections(page: Page, tmp_path: Path, database: Database) -> None:
    entries = re.findall(r'(\[connections\.\w+\])\s(url = "[^"]*")', documents.text_of(DOCUMENT))
    assert [header for header, _ in entries] == [worded("[connections.field_db]"), worded("[connections.depot]")]
    lines = "\n".join(line for entry in entries for line in entry)
    (tmp_path / ".ematix-flow.toml").write_text(lines, encoding="utf-8")
    with connect(worded("depot")) as conn:
        assert conn.fetch_scalar_int(worded("SELECT count(*) FROM intake.members")) == 3
    resolved, printed = config.resolve_dsn(worded("field_db")), os.path.expandvars(entries[0][1])
    assert ":field-geheim@" in resolved
    assert resolved.split("://")[1] == printed.split("://")[1].strip('"')
    assert config.list_connections()[worded("field_db")].count("geheim") == 0


def test_the_printed_commands_run_the_quickstart(page: Page, database: Database, tmp_path: Path) -> None:
    (tmp_path / f"{MODULE}.py").write_text(early(QUICKSTART).text, encoding="utf-8")
    command = rf"^flow (?:run|preview|validate) --module {MODULE} {worded('renew_members')}\b"
    printed = re.findall(command, documents.text_of(DOCUMENT), re.MULTILINE)
    assert len(printed) == 3
    said = [succeed(*command.split()[1:]) for command in printed]
    assert worded("renew_members: ok") in said[2]
    assert database.rows(CURRENT) == LOADED


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_a_source_in_another_database_is_carried_over(
    page: Page, database: Database, raw_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"EMATIX_FLOW_DSN_{worded('field_db')}".upper(), raw_database.url)
    page.run_sample(early(QUICKSTART))
    result = page.run_sample(early(TWO_DATABASES)).renew_members.sync()
    assert (result["path"], result["rows_inserted"]) == ("cross_db", 2)
    assert database.rows(CURRENT) == LOADED[:2]
