"""The line of a run: mode, way, counts, and what a reader expects of each mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from ematix_flow import Annotated, BigInt, ObjectStoreLocalConnection, ematix, pk
from ematix_flow.cli.render import report
from ematix_flow.declare import registry
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.engine.batch.result import Result, RunCost, TargetResult


@pytest.fixture
def spec(project: Path) -> PipelineSpec:
    """A pipeline from CSV files to a warehouse."""

    @ematix.table(schema="analytics")
    class Orders:
        id: Annotated[BigInt, pk()]

    files = ObjectStoreLocalConnection("files", path="data", format="csv")

    @ematix.pipeline(target=Orders, source_connection=files, target_connection="warehouse", mode="append")
    def load_orders() -> str:
        return "SELECT id FROM raw.orders"

    return registry.get_pipeline("load_orders").spec


def target(mode: str = "append", **more: object) -> TargetResult:
    values: dict[str, object] = {"source_kind": "files", "target_kind": "duckdb", "rows_read": 4000, **more}
    return TargetResult("analytics.orders", "warehouse", mode, str(values.pop("path", "cross_db")), **values)  # type: ignore[arg-type]


def test_an_append_tells_rows_in_and_inserted_and_the_format_of_its_files(spec: PipelineSpec) -> None:
    result = Result("load_orders", "r1", "success", (target(rows_inserted=4000, lane="arrow"),), 1.94)
    (line,) = report.report_lines(result, spec, width=14)
    assert " ".join(line.split()) == "load_orders append csv → duckdb 4,000 rows in 4,000 inserted arrow lane 1.9 s"


def test_a_load_that_took_long_tells_its_pace_and_a_short_one_only_with_verbose(spec: PipelineSpec) -> None:
    slow = target(rows_inserted=4000, load_seconds=8.0, bytes_staged=16_000_000)
    (line,) = report.report_lines(Result("load_orders", "r1", "success", (slow,), 9.94), spec)
    assert line.endswith("9.9 s, 500 rows/s, 2.0 MB/s")
    quick = Result("load_orders", "r1", "success", (target(rows_inserted=4000, load_seconds=2.0),), 3.0)
    assert report.report_lines(quick, spec)[0].endswith("3.0 s")
    assert report.report_lines(quick, spec, verbose=True)[0].endswith("3.0 s, 2,000 rows/s")
    failed = target(error="no room left", load_seconds=8.0)
    assert "rows/s" not in report.report_lines(Result("load_orders", "r1", "partial", (failed,), 9.0), spec)[0]


def test_a_second_run_tells_what_stayed_and_where_it_ended() -> None:
    told = report.counts(target(rows_unchanged=4000, watermark="2026-01-31 23:59:00.000000"))
    assert told == "0 inserted, 4,000 unchanged (watermark 2026-01-31 23:59:00)"


def test_a_merge_tells_updates_and_scd2_tells_closings_even_when_there_are_none() -> None:
    assert report.counts(target("merge", rows_inserted=3)) == "3 inserted, 0 updated"
    assert report.counts(target("merge", rows_deleted=2)) == "0 inserted, 0 updated, 2 deleted"
    assert report.counts(target("scd2", rows_inserted=12, rows_unchanged=488)) == "12 inserted, 0 closed, 488 unchanged"


def test_a_load_inside_the_database_names_no_lane(spec: PipelineSpec) -> None:
    inside = target("merge", path="same_db", lane="database")
    (line,) = report.report_lines(Result("load_orders", "r1", "success", (inside,), 1.0), spec)
    assert "(inside DuckDB)" in line
    assert "lane" not in line


def test_a_load_inside_the_database_says_so_by_its_name() -> None:
    assert report.counts(target("merge", path="same_db", target_kind="sqlite")).endswith("(inside SQLite)")


def test_each_target_of_a_fan_out_has_its_own_line_and_a_failed_one_says_why(spec: PipelineSpec) -> None:
    targets = (target(rows_inserted=1, rows_read=1), target("merge", target_kind="delta", error="no room left"))
    lines = report.report_lines(Result("load_orders", "r1", "partial", targets, 3.0, fan_out=True), spec, width=11)
    assert "1 row in" in lines[0]
    assert lines[1].strip().startswith("merge")
    assert "failed: no room left" in lines[1]


def test_changes_of_the_schema_are_reported_and_a_new_table_only_with_verbose(spec: PipelineSpec) -> None:
    noted = target(notes=("+ create analytics.orders", "+ tier TEXT NULL", "drift: extra column"))
    result = Result("load_orders", "r1", "success", (noted,), 1.0)
    assert [line.strip() for line in report.report_lines(result, spec)[1:]] == [
        "+ tier TEXT NULL",
        "drift: extra column",
    ]
    assert len(report.report_lines(result, spec, verbose=True)) == 4


def test_a_function_that_did_the_work_itself_has_a_line_too(spec: PipelineSpec) -> None:
    result = Result("load_orders", "r1", "success", seconds=75, value={"rows": 3})
    assert " ".join(report.report_lines(result, spec)[0].split()) == "load_orders success 1 min 15 s"


def test_the_summary_counts_and_leaves_out_what_did_not_happen() -> None:
    assert report.summary(succeeded=3, failed=0, skipped=0, engine_seconds=3.14) == "3 ok · engine started in 3.1 s"
    assert report.summary(succeeded=1, failed=2, skipped=1, engine_seconds=None) == "1 ok · 2 failed · 1 skipped"


@pytest.mark.parametrize(
    ("session", "seconds", "told"),
    [
        ({"kind": "local", "engine": "local[2]"}, 3.14, "1 ok · engine started in 3.1 s (Spark, local[2])"),
        ({"kind": "local", "engine": "sail"}, 0.5, "1 ok · engine started in 0.5 s (sail)"),
        ({"kind": "cluster", "engine": "spark://host:7077"}, None, "1 ok · engine (Spark, spark://host:7077)"),
        ({"kind": "warm", "engine": "warm", "pid": 4711}, 0.2, "1 ok · warm engine 4711"),
        (None, None, "1 ok"),
    ],
)
def test_the_summary_names_the_engine_of_the_runs(
    session: dict[str, object] | None, seconds: float | None, told: str
) -> None:
    result = Result("load_orders", "r1", "success", (target(),), 1.0, cost=RunCost(session=session))
    inside = Result("daily", "r2", "success", (target(),), 1.0, cost=RunCost())
    found = report.session_of([inside, result])
    assert report.summary(succeeded=1, failed=0, skipped=0, engine_seconds=seconds, session=found) == told
