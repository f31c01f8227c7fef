"""Rows of the comparison with the original (docs/differences.md): tables and the state of pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
from tests.unit.cli.conftest import Flow

from ematix_flow import BigInt, DuckDBConnection, SQLiteConnection, Text, config, connect, natural_key, pipeline, pk
from ematix_flow.api.connect import LiveConnection
from ematix_flow.declare.table import table
from ematix_flow.foundation.errors import DriftError


def declared(**columns: Any) -> Any:
    body = {"__annotations__": {"id": Annotated[BigInt, pk()], **columns}, "__module__": __name__}
    return table(schema="main", name="people")(type("People", (), body))


PEOPLE = declared(email=Annotated[Text, natural_key()])


@pytest.fixture(params=["sqlite", "duckdb"])
def conn(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = {"sqlite": SQLiteConnection, "duckdb": DuckDBConnection}[request.param]
    with LiveConnection(made("base", str(tmp_path / "base.db"))) as opened:
        yield opened


def test_ensuring_a_table_says_what_was_done_and_changes_nothing_by_itself(conn: Any) -> None:
    """gaps M8"""
    assert PEOPLE.ensure(conn)["action"] == "created"
    assert (PEOPLE.ensure(conn)["action"], PEOPLE.ensure(conn)["differences"]) == ("matched", [])
    wider = declared(email=Annotated[Text, natural_key()], city=Text | None)
    with pytest.raises(DriftError, match="city"):
        wider.ensure(conn)
    told = wider.ensure(conn, on_drift="warn")
    assert (told["action"], told["steps"]) == ("drift", [])
    assert "city" in " ".join(told["differences"])
    assert wider.ensure(conn, on_drift="evolve")["steps"] != []
    assert wider.ensure(conn)["action"] == "matched"
    with pytest.raises(ValueError, match="on_drift='ignore' is not known"):
        PEOPLE.ensure(conn, on_drift="ignore")


def test_unique_constraints_that_were_dropped_or_added_outside_are_drift(conn: Any) -> None:
    """gaps M8"""
    declared(email=Text).ensure(conn)
    told = PEOPLE.ensure(conn, on_drift="warn")
    assert told["differences"] == ["+ UNIQUE (email) is declared and missing"]
    conn.execute("DROP TABLE main.people" if conn.dialect() == "duckdb" else "DROP TABLE people")
    PEOPLE.ensure(conn)
    with pytest.raises(DriftError, match=r"- UNIQUE \(email\) is in the table and not declared"):
        declared(email=Text).ensure(conn)


def test_the_state_of_pipelines_is_data_and_a_table(flow: Flow, shop: Path) -> None:
    """gaps M9"""
    flow("run", "people")
    (names, people) = pipeline.status_snapshot()
    assert (people["name"], people["last_run"]["success"], people["attempt_state"]) == ("people", True, None)
    assert people["retry_policy"]["max_attempts"] == 3
    assert names["last_run"] is None
    told = flow("status", "--json").document
    assert {"last_run", "retry_policy", "attempt_state"} <= set(told[0])
    shown = pipeline.render_status_table([names, people])
    assert shown.splitlines()[0].split()[:2] == ["NAME", "SCHEDULE"]
    assert shown == flow("status").out.rstrip("\n")


def test_options_of_those_who_watch_are_taken_everywhere(flow: Flow, shop: Path) -> None:
    """gaps refusals: --alerter and --metrics on flow status and flow runs list"""
    flow("run", "people")
    for words in (("status",), ("runs", "list")):
        assert flow(*words, "--alerter", "stdout://", "--metrics", "stdout://").code == 0


def test_a_dsn_keeps_its_scheme_and_a_connection_is_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """gaps L7"""
    monkeypatch.setenv("EMATIX_FLOW_DSN_SHOP", "mysql+pymysql://ana:secret@127.0.0.1:1/shop")
    assert config.resolve_dsn("shop") == "mysql+pymysql://ana:secret@127.0.0.1:1/shop"
    with pytest.raises(Exception, match=r"127\.0\.0\.1"):
        config.connect("shop")
    with pytest.raises(Exception, match=r"127\.0\.0\.1"):
        connect("shop")


def test_two_urls_are_the_same_database_or_not() -> None:
    """gaps L17"""
    from ematix_flow import _core

    assert _core.same_database("postgres://ana@db/shop", "postgresql://ana@db:5432/shop")
    assert not _core.same_database("postgres://ana@db/shop", "postgres://ana@db/other")


def test_a_check_is_never_true_of_what_it_did_not_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """gaps refusals: check_connection"""
    from ematix_flow import PubSubConnection, register_connection
    from ematix_flow.declare.connections import clear_registry

    register_connection(PubSubConnection("topics", project_id="shop"))
    try:
        answered, told = config.check_connection("topics")
    finally:
        clear_registry()
    assert not answered
    assert told


def test_an_unknown_column_of_a_unique_constraint_is_refused_at_declaration() -> None:
    """gaps L10"""
    body = {
        "__annotations__": {"id": Annotated[BigInt, pk()]},
        "__module__": __name__,
        "__unique_constraints__": (("mail",),),
    }
    with pytest.raises(ValueError, match="__unique_constraints__ names 'mail'"):
        table(schema="main")(type("People", (), body))
