"""Every batch sample of the product's 0.3.0 document runs as printed against a real PostgreSQL.

The text is read at run time (see documents.py). A block runs after the blocks it builds on; tables and functions that a
block mentions and no block defines are defined here. Three blocks are made of placeholders rather than of one working
program, and the tests give them what the placeholders stand for: a table with `target_col`, a table without
`updated_at` for the query that does not select it, and (in test_spec_connections.py) one `lake` per file format.
"""

from __future__ import annotations

import importlib
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated, Any

import pytest

from ematix_flow import (
    BigInt,
    DeltaLocalConnection,
    String,
    Text,
    TimestampTZ,
    ematix,
    pk,
    register_connection,
)
from ematix_flow.declare import registry
from ematix_flow.foundation.errors import PartialFailure
from tests.e2e import documents
from tests.e2e.names import (
    APPEND,
    CRON,
    DEPENDENCIES,
    FAN_OUT,
    INCREMENTAL,
    MERGE,
    PIPELINES,
    PROGRAMMATIC,
    SCD2,
    SIGNATURES,
    START,
    STATIC,
    TABLES,
    TRANSFORMS,
    WIRING,
)  # fmt: skip
from tests.e2e.samples import Database, Page

DOCUMENT = "readme-0.3.0.txt"
pytestmark = pytest.mark.skipif(not (documents.FOLDER / DOCUMENT).is_file(), reason=documents.MISSING)

EVENTS = [(1, "login"), (2, None), (3, "logout")]


@ematix.table(schema="analytics")
class Customers:
    """The columns of the customers query."""

    customer_id: Annotated[BigInt, pk()]
    email: String[256] | None
    name: Text | None


@ematix.table(schema="analytics")
class Renamed:
    """A table with the column of the documents' rename map."""

    customer_id: Annotated[BigInt, pk()]
    target_col: Text | None


@ematix.table(schema="archive")
class CustomerArchive:
    """The second target of the fan-out."""

    customer_id: Annotated[BigInt, pk()]
    email: Text | None
    name: Text | None
    updated_at: Text


@ematix.table(schema="analytics")
class DailyRollups:
    """The target of the dependent pipeline."""

    day: Annotated[TimestampTZ, pk()]
    events: BigInt


def events(database: Database) -> list[tuple[Any, ...]]:
    return database.rows("SELECT event_id, name FROM analytics.events ORDER BY event_id")


# Pipelines ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", [START, PIPELINES])
def test_the_first_pipeline_creates_and_fills_its_table(page: Page, database: Database, sample: str) -> None:
    result = page.run(sample).ingest_events.sync()
    assert events(database) == EVENTS
    assert (result["status"], result["path"], result["rows_inserted"]) == ("success", "same_db", 3)
    history = database.rows("SELECT run_id::text, status, rows_inserted FROM ematix_flow.run_history")
    assert history == [(result["run_id"], "success", 3)]
    key = database.rows(
        "SELECT column_name FROM information_schema.key_column_usage WHERE table_schema = 'analytics' "
        "AND table_name = 'events'"
    )
    assert key == [("event_id",)]


def test_the_result_reads_like_a_dict_with_every_count(page: Page) -> None:
    result = page.run(PIPELINES).ingest_events()
    counts = ("rows_inserted", "rows_updated", "rows_unchanged", "rows_closed")
    assert {"run_id", "status", "path", *counts} <= set(result)
    assert [result[name] for name in counts] == [3, 0, 0, 0]


def test_preview_dry_run_and_validate_change_nothing(page: Page, database: Database) -> None:
    pipeline = page.run(PIPELINES).ingest_events
    plan = pipeline.preview()
    assert (plan.targets[0].path, plan.targets[0].exists) == ("same_db", False)
    assert "SELECT event_id, name, received_at FROM raw.events" in plan.to_text()
    assert pipeline.validate().ok
    rehearsal = pipeline.dry_run()
    assert (rehearsal["status"], rehearsal["rows_inserted"]) == ("dry_run", 3)
    assert database.rows("SELECT to_regclass('analytics.events')") == [(None,)]
    assert database.rows("SELECT count(*) FROM ematix_flow.run_history") == [(0,)]
    assert database.rows("SELECT relname FROM pg_class WHERE relname LIKE 'stage%'") == []


def test_a_dependent_pipeline_is_ordered_after_its_upstream_and_keeps_its_retry(page: Page) -> None:
    spec = page.run(PIPELINES, DEPENDENCIES, DailyRollups=DailyRollups).daily_rollups.spec
    registry.check_graph()
    assert registry.order(["daily_rollups", "ingest_events"]) == ["ingest_events", "daily_rollups"]
    assert spec.retry.max_attempts == 5
    assert [spec.retry.wait_after(attempt) for attempt in (1, 2, 3)] == [30, 60, 120]


def test_the_customer_table_has_the_documented_name_types_and_key(page: Page) -> None:
    table = page.run(PIPELINES, TABLES).CustomerDim.spec()
    assert table.qualified == "analytics.customer_dim"
    assert table.primary_key == ("customer_id",)
    assert [(column.name, repr(column.type), column.nullable) for column in table.columns] == [
        ("customer_id", "BigInt", False), ("email", "String[256]", True), ("name", "Text", True),
        ("updated_at", "TimestampTZ", False),
    ]  # fmt: skip


def test_both_function_signatures_become_pipelines(page: Page) -> None:
    found = page.run(PIPELINES, TABLES)
    block = page.samples[SIGNATURES].text.splitlines()
    for line, options in zip(block, ({}, {"source_table": "raw.customers"}), strict=True):
        exec(line, vars(found))
        ematix.pipeline(target=found.CustomerDim, mode="append", **options)(found.sync)
    assert registry.get_pipeline("sync").spec.source_table == "raw.customers"


def test_a_static_source_is_renamed_by_its_map(page: Page, database: Database) -> None:
    database.run("ALTER TABLE raw.customers RENAME COLUMN name TO source_col")
    page.run(PIPELINES, TABLES)
    found = page.run(STATIC, CustomerDim=Renamed)
    assert found.sync_customers.sync()["rows_inserted"] == 3
    loaded = database.rows("SELECT customer_id, target_col FROM analytics.renamed ORDER BY customer_id")
    assert loaded == [(1, "Ada"), (2, "Bob"), (3, None)]


def test_a_map_to_a_column_that_is_not_declared_is_refused(page: Page) -> None:
    found = page.run(PIPELINES, TABLES, STATIC)
    with pytest.raises(ValueError, match=r"column_map names .*target_col"):
        found.sync_customers.sync()


# Modes ----------------------------------------------------------------------------------------------------------------


def test_append_without_a_connection_goes_to_the_default_one(page: Page, database: Database) -> None:
    assert page.run(PIPELINES, APPEND).ingest.sync()["rows_inserted"] == 3
    assert events(database) == EVENTS


def test_merge_updates_only_what_changed_in_the_compared_columns(page: Page, database: Database) -> None:
    page.run(PIPELINES, TABLES)
    pipeline = page.run(MERGE, CustomerDim=Customers).sync
    assert pipeline.sync()["rows_inserted"] == 3
    database.run("UPDATE raw.customers SET name = 'Bobby' WHERE customer_id = 2")
    database.run("INSERT INTO raw.customers VALUES (4, 'dan@example.org', 'Dan', '2026-01-04')")
    again = pipeline.sync()
    assert (again["rows_inserted"], again["rows_updated"], again["rows_unchanged"]) == (1, 1, 2)
    names = database.rows("SELECT customer_id, name FROM analytics.customers ORDER BY customer_id")
    assert names == [(1, "Ada"), (2, "Bobby"), (3, None), (4, "Dan")]


def test_scd2_keeps_versions_by_event_time_and_closes_old_ones(page: Page, database: Database) -> None:
    now = datetime.now(timezone.utc).replace(microsecond=0)
    new, old = now - timedelta(days=2), now - timedelta(days=60)
    stamp = "%Y-%m-%d %H:%M:%S"
    database.run(f"UPDATE raw.customers SET updated_at = '{new.strftime(stamp)}'")
    database.run(f"UPDATE raw.customers SET updated_at = '{old.strftime(stamp)}' WHERE customer_id = 3")
    pipeline = page.run(PIPELINES, TABLES, SCD2).sync
    assert pipeline.sync()["rows_inserted"] == 3
    changed = new + timedelta(days=1)
    database.run(
        f"UPDATE raw.customers SET name = 'Adele', updated_at = '{changed.strftime(stamp)}' WHERE customer_id = 1"
    )
    again = pipeline.sync()
    assert again["rows_inserted"] == 1
    versions = database.rows(
        "SELECT customer_id, email, name, valid_from, valid_to, is_current FROM analytics.customer_dim "
        "ORDER BY customer_id, valid_from"
    )
    assert versions == [
        (1, "ada@example.org", "Ada", new, changed, False),
        (1, "ada@example.org", "Adele", changed, None, True),
        (2, None, "Bob", new, None, True),
        (3, None, None, old, old + timedelta(days=30), False),
    ]
    assert pipeline.sync()["rows_inserted"] == 0


def test_an_incremental_load_reads_only_what_came_since(page: Page, database: Database) -> None:
    pipeline = page.run(PIPELINES, INCREMENTAL).ingest
    assert pipeline.sync()["rows_inserted"] == 3
    database.run(
        "INSERT INTO raw.events VALUES (4, 'late', '2026-01-01 11:00:00+00'), (5, 'new', '2026-01-02 00:00+00')"
    )
    again = pipeline.sync()
    assert again["rows_inserted"] == 2
    assert [row[0] for row in events(database)] == [1, 2, 3, 4, 5]
    mark = database.rows("SELECT last_value FROM ematix_flow.watermarks")
    assert datetime.fromisoformat(mark[0][0]) == datetime(2026, 1, 2, tzinfo=timezone.utc)


def test_pre_transforms_choose_rows_and_post_transforms_run_after_the_load(page: Page, database: Database) -> None:
    database.run("INSERT INTO raw.events VALUES (1, 'login again', '2026-01-05 10:00:00+00')")
    calls: list[int] = []

    @ematix.transform(name="update_mart")
    def update_mart(conn: Any, parent: Any) -> dict[str, int]:
        calls.append(parent.rows_inserted)
        return {"rows": conn.execute("CREATE TABLE analytics.mart AS SELECT name FROM analytics.events")}

    result = page.run(PIPELINES, TRANSFORMS).ingest.sync(source_table="raw.events")
    assert events(database) == [(1, "login again"), (3, "logout")]
    assert (result["rows_inserted"], calls) == (2, [2])
    assert len(database.rows("SELECT name FROM analytics.mart")) == 2
    steps = database.rows("SELECT step_name, status FROM ematix_flow.run_history WHERE mode = 'transform' ORDER BY 1")
    assert steps == [
        ("transform[0]:sql", "transform_success"), ("transform[1]:ref=update_mart", "transform_success"),
    ]  # fmt: skip


def test_a_failing_post_transform_leaves_the_load_when_told_to_go_on(page: Page, database: Database) -> None:
    result = page.run(PIPELINES, TRANSFORMS).ingest.sync(source_table="raw.events")
    assert result["rows_inserted"] == 2
    assert [outcome["status"] for outcome in result.transforms] == ["success", "failed"]
    assert "update_mart" in str(result.transforms[1]["error"])


def test_a_function_without_a_body_runs_once_it_is_told_its_source(page: Page, database: Database) -> None:
    pipeline = page.run(PIPELINES, CRON).ingest
    assert pipeline.spec.schedule == "*/5 * * * *"
    with pytest.raises(ValueError, match="returned nothing"):
        pipeline.sync()
    assert pipeline.sync(source_table="raw.events")["rows_inserted"] == 3
    assert events(database) == EVENTS


def test_a_pipeline_is_imported_and_synced_with_other_keys(
    page: Page, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = [page.samples[name].text for name in (PIPELINES, INCREMENTAL)]
    (tmp_path / "my_pipelines.py").write_text("\n".join(printed), encoding="utf-8")
    monkeypatch.delitem(sys.modules, "my_pipelines")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    page.run(PROGRAMMATIC)
    assert events(database) == EVENTS


# Across databases: these start Spark ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("spark")
def test_a_source_in_another_database_is_carried_over(
    page: Page, database: Database, raw_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_DSN_RAW_DB", raw_database.url)
    result = page.run(PIPELINES, TABLES, WIRING).sync_customers.sync()
    assert (result["path"], result["rows_inserted"]) == ("cross_db", 2)
    loaded = database.rows("SELECT customer_id, email, name, is_current FROM analytics.customer_dim ORDER BY 1")
    assert loaded == [(1, "ada@example.org", "Ada", True), (2, None, "Bob", True)]


@pytest.mark.usefixtures("spark")
def test_a_fan_out_reads_once_and_every_target_has_its_own_outcome(
    page: Page, database: Database, raw_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_DSN_RAW_DB", raw_database.url)
    register_connection(DeltaLocalConnection(name="lake", path=str(tmp_path / "lake")))
    found = page.run(PIPELINES, TABLES, FAN_OUT, CustomerArchive=CustomerArchive)
    result = found.sync_customers.sync()
    assert [result[name]["rows_inserted"] for name in ("analytics.customer_dim", "archive.customer_archive")] == [2, 2]
    assert database.rows("SELECT customer_id, email FROM analytics.customer_dim ORDER BY 1") == [
        (1, "ada@example.org"), (2, None),
    ]  # fmt: skip
    from deltalake import DeltaTable

    archived = DeltaTable(tmp_path / "lake" / "archive" / "customer_archive").to_pyarrow_table().to_pylist()
    assert sorted((row["customer_id"], row["email"]) for row in archived) == [(1, " Ada@Example.ORG "), (2, "")]


@pytest.mark.usefixtures("spark")
def test_a_failing_target_does_not_stop_the_others_when_told_to_go_on(
    page: Page, database: Database, raw_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_DSN_RAW_DB", raw_database.url)
    (tmp_path / "lake").write_text("a file where the lake should be")
    register_connection(DeltaLocalConnection(name="lake", path=str(tmp_path / "lake")))
    found = page.run(PIPELINES, TABLES, FAN_OUT, CustomerArchive=CustomerArchive)
    with pytest.raises(PartialFailure, match=r"1 of 2 targets .* failed: archive\.customer_archive"):
        found.sync_customers.sync(continue_on_target_failure=True)
    assert database.rows("SELECT count(*) FROM analytics.customer_dim") == [(2,)]
