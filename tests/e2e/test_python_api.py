"""Loads from Python, without a decorator and by name, and what a pipeline's function may take and return."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, PostgresConnection, Source, Text, TimestampTZ, _core, config, ematix, pipeline, pk
from ematix_flow import register_connection as register
from ematix_flow.connections import clear_registry
from ematix_flow.declare import registry
from ematix_flow.foundation.errors import FlowError, MissingColumn, SqlError, Unreachable
from ematix_flow.preview import render_text
from tests.e2e.samples import Database, set_variables

RAW_EVENTS = """
DROP SCHEMA IF EXISTS analytics CASCADE; DROP SCHEMA IF EXISTS raw CASCADE; CREATE SCHEMA raw;
CREATE TABLE raw.events (event_id bigint, name text, received_at timestamptz);
INSERT INTO raw.events VALUES
  (1, 'login', '2026-01-01 10:00:00+00'), (2, NULL, '2026-01-01 10:05:00+00'), (3, 'logout', '2026-01-01 11:00:00+00');
"""
QUERY = "SELECT event_id, name, received_at FROM raw.events"


@ematix.table(schema="analytics")
class Events:
    event_id: Annotated[BigInt, pk()]
    name: Text | None
    received_at: TimestampTZ


@pytest.fixture(autouse=True)
def _declared(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    set_variables(monkeypatch, tmp_path, url=database.url)
    database.run(RAW_EVENTS)
    registry.clear()
    clear_registry()
    register(PostgresConnection(name="warehouse", url=database.url))
    yield
    registry.clear()
    clear_registry()


def ids(database: Database) -> list[int]:
    return [row[0] for row in database.rows("SELECT event_id FROM analytics.events ORDER BY 1")]


def declared(function: Any, **options: Any) -> Any:
    return ematix.pipeline(target=Events, target_connection="warehouse", mode="append", **options)(function)


# Functions -----------------------------------------------------------------------------------------------------------


def _none() -> str:
    return QUERY


def _one(conn: Any) -> str:
    newest = conn.fetch_scalar_int("SELECT max(event_id) FROM raw.events")
    return f"{QUERY} WHERE event_id <= {newest}"


def _two(source: Any, target: Any) -> str:
    assert source.name == target.name == "warehouse"
    return QUERY


async def _later(conn: Any) -> str:
    return QUERY


def _a_source(conn: Any) -> Source:
    return Source.table(conn, "raw", "events", ["event_id", "name", "received_at"])


def _a_named_source() -> Source:
    return Source("warehouse", QUERY)


@pytest.mark.parametrize("function", [_none, _one, _two, _later, _a_source, _a_named_source])
def test_a_function_gets_what_it_takes_and_its_answer_is_loaded(database: Database, function: Any) -> None:
    result = declared(function).sync()
    assert (result["rows_inserted"], result["path"]) == (3, "same_db")
    assert ids(database) == [1, 2, 3]


def test_a_function_that_returns_a_dict_has_done_the_work_itself(database: Database) -> None:
    result = declared(lambda conn: {"files": 4})()
    assert result["files"] == 4
    assert result.status == "success"
    assert database.rows("SELECT to_regclass('analytics.events')") == [(None,)]


def test_a_function_that_returns_something_else_is_reported_at_its_line() -> None:
    with pytest.raises(ValueError, match="returned int") as caught:
        declared(lambda conn: 3)()
    assert "test_python_api.py:" in str(caught.value)


def test_a_function_that_raises_is_shown_with_the_line_that_raised() -> None:
    def broken(conn: Any) -> str:
        raise KeyError("region")

    with pytest.raises(ValueError, match="broken raised KeyError: 'region'") as caught:
        declared(broken)()
    assert isinstance(caught.value, FlowError)
    assert caught.value.where is not None
    assert caught.value.where.text == 'raise KeyError("region")'


@pytest.mark.usefixtures("spark")
def test_a_function_may_take_spark_and_return_a_dataframe(database: Database) -> None:
    def load(conn: Any, spark: Any) -> Any:
        newest = conn.fetch_scalar_int("SELECT max(event_id) FROM raw.events")
        return spark.sql(
            f"SELECT {newest + 1}L AS event_id, 'made' AS name, TIMESTAMP '2026-01-01 00:00:00' AS received_at"
        )

    result = declared(load).sync()
    assert (result["rows_inserted"], result["path"]) == (1, "cross_db")
    assert ids(database) == [4]


# Loads without a decorator -------------------------------------------------------------------------------------------


def test_sync_loads_a_query_and_says_what_it_did(database: Database) -> None:
    result = pipeline.sync(target=Events, source=QUERY, target_connection="warehouse")
    assert set(result) >= {"run_id", "rows_inserted", "status", "path"}
    assert (result["rows_inserted"], result["status"], result["path"]) == (3, "success", "same_db")
    history = database.rows("SELECT pipeline_name, mode FROM ematix_flow.run_history")
    assert history == [("analytics.events", "append")]


def test_sync_merges_from_an_open_connection_into_another(database: Database) -> None:
    with config.connect("warehouse") as conn, _core.connect(database.url) as other:
        source = Source.postgres_query(other, QUERY)
        pipeline.sync(target=Events, source=source, target_connection=conn, mode="merge", pipeline_name="by_hand")
        database.run("UPDATE raw.events SET name = 'out' WHERE event_id = 3")
        again = pipeline.sync(
            target=Events, source=source, target_connection=conn, mode="scd1", pipeline_name="by_hand"
        )
    assert [again[f"rows_{what}"] for what in ("inserted", "updated", "unchanged")] == [0, 1, 2]


def test_a_dry_run_counts_and_leaves_nothing_behind(database: Database) -> None:
    options: dict[str, Any] = {"target": Events, "source": QUERY, "target_connection": "warehouse", "mode": "merge"}
    first = pipeline.sync(**options, dry_run=True)
    assert (first["status"], first["rows_inserted"]) == ("dry_run", 3)
    assert database.rows("SELECT to_regclass('analytics.events')") == [(None,)]
    pipeline.sync(**options)
    database.run("UPDATE raw.events SET name = 'out' WHERE event_id = 3")
    again = pipeline.sync(**options, dry_run=True)
    assert (again["rows_inserted"], again["rows_updated"], again["rows_unchanged"]) == (0, 1, 2)
    assert database.rows("SELECT name FROM analytics.events WHERE event_id = 3") == [("logout",)]


def test_errors_of_sync_point_at_its_call() -> None:
    for wrong, kind in (("SELECT * FORM raw.events", SqlError), ("SELECT event_id FROM raw.events", MissingColumn)):
        with pytest.raises(kind) as caught:
            pipeline.sync(target=Events, source=wrong, target_connection="warehouse")
        assert caught.value.where is not None
        assert caught.value.where.file == __file__
    with pytest.raises(TypeError, match="no keyword 'key'"):
        pipeline.sync(target=Events, source=QUERY, target_connection="warehouse", mode="merge", key=["event_id"])
    with pytest.raises(NotImplementedError, match="did you mean 'merge'"):
        pipeline.sync(target=Events, source=QUERY, target_connection="warehouse", mode="merg")


# Pipelines by name ---------------------------------------------------------------------------------------------------


def test_a_pipeline_is_planned_dry_run_checked_and_run_by_name(database: Database) -> None:
    declared(_none, name="ingest")
    plan = pipeline.preview("ingest")
    told = render_text(plan)  # type: ignore[arg-type]
    assert "same_db: inside the database" in told
    assert "CREATE TABLE" not in told
    assert "CREATE TABLE" in render_text(plan, verbose=True)  # type: ignore[arg-type]
    assert pipeline.dry_run("ingest")["rows_inserted"] == 3
    assert pipeline.preview("ingest", dry_run=True)["status"] == "dry_run"  # type: ignore[index]
    assert pipeline.validate("ingest").ok
    assert pipeline.get_pipeline("ingest").fn()["rows_inserted"] == 3
    assert ids(database) == [1, 2, 3]


def test_validate_says_what_is_wrong_with_the_users_line(database: Database) -> None:
    declared(lambda conn: "SELECT event_id, nam FROM raw.events", name="ingest")
    result = pipeline.validate("ingest")
    assert not result.ok
    assert "nam" in result.errors[0]
    assert "test_python_api.py:" in result.errors[0]


def test_a_transform_runs_by_itself_and_after_a_load(database: Database) -> None:
    @ematix.transform(name="count_events", target_connection="warehouse")
    def count_events(conn: Any) -> dict[str, int]:
        return {"events": conn.fetch_scalar_int("SELECT count(*) FROM raw.events")}

    done = pipeline.run_transform("count_events")
    assert (done["status"], done["metrics"]) == ("transform_success", {"events": 3})
    assert {"status", "metrics", "run_id"} == set(done)

    @ematix.pipeline(target=Events, target_connection="warehouse", mode="truncate")
    def again(conn: Any) -> str:
        return f"{QUERY} WHERE event_id = 1"

    result = declared(_none, name="first", transforms_post=[count_events, again]).sync()
    assert [outcome["status"] for outcome in result.transforms] == ["success", "success"]
    assert ids(database) == [1]


# Below the declarations ----------------------------------------------------------------------------------------------


def test_a_table_is_made_from_its_class_and_from_its_data(database: Database) -> None:
    database.run("CREATE SCHEMA analytics")
    database.run(_core.create_table_sql(Events))
    with _core.connect(database.url) as conn:
        data = json.dumps(Events._to_spec())
        assert conn.ensure_table(data)["steps"] == []
        assert Events.ensure(conn)["steps"] == []
        database.run("DROP TABLE analytics.events")
        assert conn.ensure_table(data)["steps"] == ["+ create analytics.events"]
    assert _core.create_table_sql(json.loads(data)) == _core.create_table_sql(Events)


def test_two_connections_are_the_same_database_or_not(database: Database, raw_database: Database) -> None:
    with _core.connect(database.url) as one, _core.connect(raw_database.url) as other:
        assert _core.same_database(one, "warehouse")
        assert not _core.same_database(one, other)
    assert _core.core_version()


def test_a_connection_that_does_not_answer_says_so_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_DSN_GONE", "postgres://ana:geheim-99@127.0.0.1:1/wh")
    answers, said = config.check_connection("gone")
    assert not answers
    assert "geheim-99" not in said
    assert config.check_connection("warehouse")[0]
    unknown, why = config.check_connection("nowhere_at_all")
    assert not unknown
    assert "nowhere_at_all" in why
    with pytest.raises(Unreachable):
        _core.connect("postgres://ana:geheim-99@127.0.0.1:1/wh")
