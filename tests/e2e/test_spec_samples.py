"""Every batch sample of the product's 0.3.0 document, or of its twin, runs as printed against a real PostgreSQL.

The text is read at run time (see documents.py), and spoken of in the words of the twin (see words.py). A block runs
after the blocks it builds on; tables and functions that a
block mentions and no block defines are defined here. Three blocks are made of placeholders rather than of one working
program, and the tests give them what the placeholders stand for: a table with `new_label`, a table without
`changed_at` for the query that does not select it, and (in test_spec_connections.py) one `cellar` per file format.
"""

from __future__ import annotations

import ast
import importlib
import re
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
from tests.e2e.samples import MODULE, Database, Page, declared_table
from tests.e2e.words import worded

DOCUMENT = documents.NEWER

FIELD_DB = f"EMATIX_FLOW_DSN_{worded('field_db')}".upper()
CARD, ARCHIVED = worded("reporting.member_card"), worded("vault.member_vault")
EVENTS = [(1, "login"), (2, None), (3, "logout")]


Key = Annotated[BigInt, pk()]
MEMBERS = declared_table("Merged", schema="reporting", member_id=Key, mail=String[256] | None, nick=Text | None)
"""The columns of the query that merges."""
RENAMED = declared_table("Renamed", schema="reporting", member_id=Key, new_label=Text | None)
"""A table with the column of the rename map."""
VAULT = declared_table(
    "MemberVault", schema="vault", member_id=Key, mail=Text | None, nick=Text | None, changed_at=Text
)
"""The second target of the fan-out."""
PER_DAY = declared_table("RidesPerDay", schema="reporting", day=Annotated[TimestampTZ, pk()], how_many=BigInt)
"""The target of the dependent pipeline."""


def events(database: Database) -> list[tuple[Any, ...]]:
    return database.rows("SELECT ride_id, station FROM reporting.rides ORDER BY ride_id")


# Pipelines ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", [START, PIPELINES])
def test_the_first_pipeline_creates_and_fills_its_table(page: Page, database: Database, sample: str) -> None:
    result = page.run(sample).load_rides.sync()
    assert events(database) == EVENTS
    assert (result["status"], result["path"], result["rows_inserted"]) == ("success", "same_db", 3)
    history = database.rows("SELECT run_id::text, status, rows_inserted FROM ematix_flow.run_history")
    assert history == [(result["run_id"], "success", 3)]
    key = database.rows(
        "SELECT column_name FROM information_schema.key_column_usage WHERE table_schema = 'reporting' "
        "AND table_name = 'rides'"
    )
    assert key == [(worded("ride_id"),)]


def test_the_result_reads_like_a_dict_with_every_count(page: Page) -> None:
    result = page.run(PIPELINES).load_rides()
    counts = ("rows_inserted", "rows_updated", "rows_unchanged", "rows_closed")
    assert {"run_id", "status", "path", *counts} <= set(result)
    assert [result[name] for name in counts] == [3, 0, 0, 0]


def test_preview_dry_run_and_validate_change_nothing(page: Page, database: Database) -> None:
    pipeline = page.run(PIPELINES).load_rides
    plan = pipeline.preview()
    assert (plan.targets[0].path, plan.targets[0].exists) == ("same_db", False)
    assert worded("SELECT ride_id, station, docked_at FROM intake.rides") in plan.to_text()
    assert pipeline.validate().ok
    rehearsal = pipeline.dry_run()
    assert (rehearsal["status"], rehearsal["rows_inserted"]) == ("dry_run", 3)
    assert database.rows("SELECT to_regclass('reporting.rides')") == [(None,)]
    assert database.rows("SELECT count(*) FROM ematix_flow.run_history") == [(0,)]
    assert database.rows("SELECT relname FROM pg_class WHERE relname LIKE 'stage%'") == []


def test_a_dependent_pipeline_is_ordered_after_its_upstream_and_keeps_its_retry(page: Page) -> None:
    spec = page.run(PIPELINES, DEPENDENCIES, RidesPerDay=PER_DAY).rides_by_day.spec
    registry.check_graph()
    ordered = [worded("load_rides"), worded("rides_by_day")]
    assert registry.order(ordered[::-1]) == ordered
    told = page.samples[DEPENDENCIES].keyword("retry")
    assert spec.retry.max_attempts == told["max_attempts"] > 3
    waits = [told["backoff_seconds"] * told["backoff_factor"] ** attempt for attempt in range(3)]
    assert [spec.retry.wait_after(attempt) for attempt in (1, 2, 3)] == waits


def test_the_customer_table_has_the_documented_name_types_and_key(page: Page) -> None:
    table = page.run(PIPELINES, TABLES).MemberCard.spec()
    assert table.qualified == worded("reporting.member_card")
    assert table.primary_key == (worded("member_id"),)
    assert [(column.name, repr(column.type), column.nullable) for column in table.columns] == [
        (worded(name), worded(kind), nullable)
        for name, kind, nullable in (
            ("member_id", "BigInt", False), ("mail", "String[120]", True), ("nick", "Text", True),
            ("changed_at", "TimestampTZ", False),
        )
    ]  # fmt: skip


def test_both_function_signatures_become_pipelines(page: Page) -> None:
    found = page.run(PIPELINES, TABLES)
    block = ast.parse(page.samples[SIGNATURES].text).body
    source = worded("intake.members")
    for function, options in zip(block, ({}, {"source_table": source}), strict=True):
        exec(ast.unparse(function), vars(page.module))
        ematix.pipeline(target=found.MemberCard, mode="append", **options)(found.renew)
    assert registry.get_pipeline(worded("renew")).spec.source_table == source


def test_a_static_source_is_renamed_by_its_map(page: Page, database: Database) -> None:
    database.run("ALTER TABLE intake.members RENAME COLUMN nick TO old_label")
    page.run(PIPELINES, TABLES)
    found = page.run(STATIC, MemberCard=RENAMED)
    assert found.renew_members.sync()["rows_inserted"] == 3
    loaded = database.rows("SELECT member_id, new_label FROM reporting.renamed ORDER BY member_id")
    assert loaded == [(1, "Ada"), (2, "Bob"), (3, None)]


def test_a_map_to_a_column_that_is_not_declared_is_refused(page: Page) -> None:
    found = page.run(PIPELINES, TABLES, STATIC)
    with pytest.raises(ValueError, match=f"column_map names .*{worded('new_label')}"):
        found.renew_members.sync()


# Modes ----------------------------------------------------------------------------------------------------------------


def test_append_without_a_connection_goes_to_the_default_one(page: Page, database: Database) -> None:
    assert page.run(PIPELINES, APPEND).collect.sync()["rows_inserted"] == 3
    assert events(database) == EVENTS


def test_merge_updates_only_what_changed_in_the_compared_columns(page: Page, database: Database) -> None:
    page.run(PIPELINES, TABLES)
    pipeline = page.run(MERGE, MemberCard=MEMBERS).renew
    assert pipeline.sync()["rows_inserted"] == 3
    database.run("UPDATE intake.members SET nick = 'Bobby' WHERE member_id = 2")
    database.run("INSERT INTO intake.members VALUES (4, 'dan@example.org', 'Dan', '2026-01-04')")
    again = pipeline.sync()
    assert (again["rows_inserted"], again["rows_updated"], again["rows_unchanged"]) == (1, 1, 2)
    names = database.rows("SELECT member_id, nick FROM reporting.merged ORDER BY member_id")
    assert names == [(1, "Ada"), (2, "Bobby"), (3, None), (4, "Dan")]


def test_scd2_keeps_versions_by_event_time_and_closes_old_ones(page: Page, database: Database) -> None:
    now = datetime.now(timezone.utc).replace(microsecond=0)
    kept = timedelta(seconds=page.samples[SCD2].keyword("ttl_seconds"))
    new, old = now - timedelta(days=2), now - 2 * kept
    stamp = "%Y-%m-%d %H:%M:%S"
    database.run(f"UPDATE intake.members SET changed_at = '{new.strftime(stamp)}'")
    database.run(f"UPDATE intake.members SET changed_at = '{old.strftime(stamp)}' WHERE member_id = 3")
    pipeline = page.run(PIPELINES, TABLES, SCD2).renew
    assert pipeline.sync()["rows_inserted"] == 3
    changed = new + timedelta(days=1)
    database.run(
        f"UPDATE intake.members SET nick = 'Adele', changed_at = '{changed.strftime(stamp)}' WHERE member_id = 1"
    )
    again = pipeline.sync()
    assert again["rows_inserted"] == 1
    versions = database.rows(
        "SELECT member_id, mail, nick, valid_from, valid_to, is_current FROM reporting.member_card "
        "ORDER BY member_id, valid_from"
    )
    assert versions == [
        (1, "ada@example.org", "Ada", new, changed, False),
        (1, "ada@example.org", "Adele", changed, None, True),
        (2, None, "Bob", new, None, True),
        (3, None, None, old, old + kept, False),
    ]
    assert pipeline.sync()["rows_inserted"] == 0


def test_an_incremental_load_reads_only_what_came_since(page: Page, database: Database) -> None:
    pipeline = page.run(PIPELINES, INCREMENTAL).collect
    assert pipeline.sync()["rows_inserted"] == 3
    database.run(
        "INSERT INTO intake.rides VALUES (4, 'late', '2026-01-01 11:00:00+00'), (5, 'new', '2026-01-02 00:00+00')"
    )
    again = pipeline.sync()
    assert again["rows_inserted"] == 2
    assert [row[0] for row in events(database)] == [1, 2, 3, 4, 5]
    mark = database.rows("SELECT last_value FROM ematix_flow.watermarks")
    assert datetime.fromisoformat(mark[0][0]) == datetime(2026, 1, 2, tzinfo=timezone.utc)


def test_pre_transforms_choose_rows_and_post_transforms_run_after_the_load(page: Page, database: Database) -> None:
    database.run("INSERT INTO intake.rides VALUES (1, 'login again', '2026-01-05 10:00:00+00')")
    calls: list[int] = []

    @ematix.transform(name=worded("rebuild_board"))
    def rebuild_board(conn: Any, parent: Any) -> dict[str, int]:
        calls.append(parent.rows_inserted)
        return {"rows": conn.execute(worded("CREATE TABLE reporting.mart AS SELECT station FROM reporting.rides"))}

    result = page.run(PIPELINES, TRANSFORMS).collect.sync(source_table=worded("intake.rides"))
    assert events(database) == [(1, "login again"), (3, "logout")]
    assert (result["rows_inserted"], calls) == (2, [2])
    assert len(database.rows("SELECT station FROM reporting.mart")) == 2
    steps = database.rows("SELECT step_name, status FROM ematix_flow.run_history WHERE mode = 'transform' ORDER BY 1")
    assert steps == [
        ("transform[0]:sql", "transform_success"), (f"transform[1]:ref={worded('rebuild_board')}", "transform_success"),
    ]  # fmt: skip


def test_a_failing_post_transform_leaves_the_load_when_configured_to_go_on(page: Page, database: Database) -> None:
    result = page.run(PIPELINES, TRANSFORMS).collect.sync(source_table=worded("intake.rides"))
    assert result["rows_inserted"] == 2
    assert [outcome["status"] for outcome in result.transforms] == ["success", "failed"]
    assert worded("rebuild_board") in str(result.transforms[1]["error"])


def test_a_function_without_a_body_runs_once_its_source_is_given(page: Page, database: Database) -> None:
    pipeline = page.run(PIPELINES, CRON).collect
    assert pipeline.spec.schedule == page.samples[CRON].keyword("schedule")
    with pytest.raises(ValueError, match="returned nothing"):
        pipeline.sync()
    assert pipeline.sync(source_table=worded("intake.rides"))["rows_inserted"] == 3
    assert events(database) == EVENTS


def test_a_pipeline_is_imported_and_synced_with_other_keys(
    page: Page, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = [page.samples[name].text for name in (PIPELINES, INCREMENTAL)]
    (tmp_path / f"{MODULE}.py").write_text("\n".join(printed), encoding="utf-8")
    monkeypatch.delitem(sys.modules, MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    page.run(PROGRAMMATIC)
    assert events(database) == EVENTS


# Across databases: these start Spark ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("spark")
def test_a_source_in_another_database_is_carried_over(
    page: Page, database: Database, raw_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FIELD_DB, raw_database.url)
    result = page.run(PIPELINES, TABLES, WIRING).renew_members.sync()
    assert (result["path"], result["rows_inserted"]) == ("cross_db", 2)
    loaded = database.rows("SELECT member_id, mail, nick, is_current FROM reporting.member_card ORDER BY 1")
    assert loaded == [(1, "ada@example.org", "Ada", True), (2, None, "Bob", True)]


@pytest.mark.usefixtures("spark")
def test_a_fan_out_reads_once_and_every_target_has_its_own_outcome(
    page: Page, database: Database, raw_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FIELD_DB, raw_database.url)
    register_connection(DeltaLocalConnection(name=worded("cellar"), path=str(tmp_path / "lake")))
    found = page.run(PIPELINES, TABLES, FAN_OUT, MemberVault=VAULT)
    result = found.renew_members.sync()
    assert [result[name]["rows_inserted"] for name in (CARD, ARCHIVED)] == [2, 2]
    assert database.rows("SELECT member_id, mail FROM reporting.member_card ORDER BY 1") == [
        (1, "ada@example.org"), (2, None),
    ]  # fmt: skip
    from deltalake import DeltaTable

    archived = DeltaTable(tmp_path.joinpath("lake", *ARCHIVED.split("."))).to_pyarrow_table().to_pylist()
    assert sorted((row[worded("member_id")], row[worded("mail")]) for row in archived) == [
        (1, " Ada@Example.ORG "),
        (2, ""),
    ]


@pytest.mark.usefixtures("spark")
def test_a_failing_target_does_not_stop_the_others_when_configured_to_go_on(
    page: Page, database: Database, raw_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FIELD_DB, raw_database.url)
    (tmp_path / "lake").write_text("a file where the lake should be")
    register_connection(DeltaLocalConnection(name=worded("cellar"), path=str(tmp_path / "lake")))
    found = page.run(PIPELINES, TABLES, FAN_OUT, MemberVault=VAULT)
    with pytest.raises(PartialFailure, match=rf"1 of 2 targets .* failed: {re.escape(ARCHIVED)}"):
        found.renew_members.sync(continue_on_target_failure=True)
    assert database.rows("SELECT count(*) FROM reporting.member_card") == [(2,)]
