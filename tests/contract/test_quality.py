"""Checks: every system and every lane finds the same rows, and what a pipeline refuses is never published."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any

import pytest

from ematix_flow import (
    BigInt,
    Date,
    Double,
    Float,
    Integer,
    Numeric,
    String,
    Target,
    Text,
    Timestamp,
    TimestampTZ,
    ematix,
    normalize,
    pk,
)
from ematix_flow.backends.catalog import backend_for
from ematix_flow.contract.backend import QueryStage
from ematix_flow.foundation.clock import now
from ematix_flow.quality import QualityCheckFailed
from tests.contract.conftest import Systems
from tests.contract.loading import declare, frame, parquet_pipeline_of, pipeline_of, unique
from tests.harness.base import Harness

SYSTEMS = pytest.mark.systems("postgres", "mariadb", "sqlite", "duckdb", "delta", "files-parquet", "files-csv")
LANES = {"files-csv": ("spark",)}
NOON = datetime(2026, 6, 1, 12, tzinfo=timezone.utc)
COLUMNS = {
    "id": Annotated[BigInt, pk()], "email": Text | None, "status": String[10] | None, "n": Integer | None,
    "amount": Numeric[10, 2] | None, "long_amount": Numeric[30, 4] | None, "ratio": Double | None,
    "small": Float | None, "day": Date | None, "at": TimestampTZ | None, "wall": Timestamp | None,
}  # fmt: skip
ROWS = [
    (1, "a@x.de", "open", 1, "10.50", "1.5", 0.5, 0.1, date(2026, 3, 1), NOON, 0),
    (2, None, "paid", 2, "-0.01", "0", 0.1, 0.5, date(2026, 1, 1), NOON - timedelta(days=200), 1),
    (3, "A@X.DE", "PAID", 11, "100", "99999999999999999999.5", 0.95, 0.9, date(2025, 12, 31), NOON, -1),
    (4, "a@x.de\n", "zz", -5, "99.99", "2", 0.9, 0.25, date(2026, 12, 31), NOON + timedelta(days=400), 0),
    (5, "a@x.de", "it's", None, None, None, None, None, None, None, None),
    (6, "b@x.de", None, None, "1", "1", 0.2, 0.2, date(2026, 5, 5), NOON, 0),
    (7, "B@x.de", None, None, "1", "1", 0.2, 0.2, date(2026, 5, 5), NOON, 0),
]
REFUSED = {
    "email.not_null": 1, "email.regex": 2, "email.unique": 2, "status.enum": 2, "status.between": 2, "n.between": 1,
    "n.enum": 1, "amount.between": 2, "long_amount.between": 1, "ratio.between": 1, "small.between": 1,
    "day.between": 1, "at.between": 2, "wall.between": 1, "unique_group(status, n)": 2, "row_count": 0,
}  # fmt: skip


def expectations(t: Any) -> None:
    t.column("id").not_null().unique().between(1, None)
    t.column("email").not_null().regex(r"^[^@\s]+@[^@\s]+\.[a-z]{2,}$").unique()
    t.column("status").is_in(["open", "paid", "it's"]).between("a", "z")
    t.column("n").between(-5, 10).is_in([1, 2, -5])
    t.column("amount").between(0, Decimal("99.99"))
    t.column("long_amount").between(None, Decimal("99999999999999999999.4"))
    t.column("ratio").between(0.1, 0.9)
    t.column("small").between(0.1, 0.5)
    t.column("day").between(date(2026, 1, 1), "2026-12-31")
    t.column("at").between("2026-01-01T00:00:00Z", datetime(2026, 12, 31))
    t.column("wall").between(NOON, None)
    t.unique(["status", "n"])
    t.unique(["id", "email"])
    t.row_count(at_least=8, at_most=100)
    t.freshness("at", within="3650d")


def rows() -> list[dict[str, Any]]:
    names = list(COLUMNS)
    made = [dict(zip(names, row, strict=True)) for row in ROWS]
    for row in made:
        for name in ("amount", "long_amount"):
            row[name] = row[name] and Decimal(row[name])
        row["wall"] = None if row["wall"] is None else (NOON + timedelta(seconds=row["wall"])).replace(tzinfo=None)
    return made


def lanes_of(harness: Harness) -> list[str]:
    """Every way rows can take into this system."""
    inside = issubclass(backend_for(harness.connection).batch_sink, QueryStage)
    return [*LANES.get(harness.name, ("arrow", "spark")), *(["database"] if inside else [])]


def load(harness: Harness, table: Any, lane: str, given: list[dict[str, Any]], **options: Any) -> Any:
    """Load by this lane."""
    told = {"mode": "append", **options}
    if lane == "spark":
        return pipeline_of(harness, table, given, **told).sync()
    if lane != "database":
        return parquet_pipeline_of(harness, table, given, **told).sync(force_lane=lane)
    source = declare(dict(COLUMNS)).spec()
    harness.seed(source, given)
    decorate = ematix.pipeline(
        target=table, target_connection=harness.connection, source_connection=harness.connection,
        name=unique("inside"), **told,
    )  # fmt: skip
    return decorate(lambda: f"SELECT * FROM {harness.reference(source)}").sync()


@SYSTEMS
def test_refused_rows_are_never_published_and_every_lane_finds_the_same(harness: Harness) -> None:
    table = declare(COLUMNS)
    for lane in lanes_of(harness):
        with pytest.raises(QualityCheckFailed) as caught:
            load(harness, table, lane, rows(), expectations=expectations, on_quality_failure="fail")
        outcome: Any = caught.value.outcome
        assert {item.name: item.failing for item in outcome.wrong} == REFUSED, lane
        assert (outcome.checks_total, outcome.verdict) == (21, "fail")
        samples = {item.name: sorted(item.samples) for item in outcome.wrong}
        assert samples["amount.between"] == ["id=2", "id=3"]
        assert samples["email.unique"] == ["email=a@x.de"]
        assert samples["unique_group(status, n)"] == ["status=None, n=None"]
        assert harness.rows(table.spec()) == [], lane
        assert caught.value.where is not None
        assert "test_quality.py" in str(caught.value.where)


@pytest.mark.systems("delta", "files-parquet")
def test_spark_finds_the_same_in_staged_files_where_duckdb_is_not_installed(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ematix_flow.families.lake.sink.can_check_in_duckdb", lambda: False)
    table = declare(COLUMNS)
    with pytest.raises(QualityCheckFailed) as caught:
        load(harness, table, "arrow", rows(), expectations=expectations, on_quality_failure="fail")
    assert {item.name: item.failing for item in caught.value.outcome.wrong} == REFUSED  # type: ignore[attr-defined]
    plan = parquet_pipeline_of(harness, table, rows(), mode="append", expectations=expectations).preview()
    assert plan.targets[0].lane == "arrow"


@pytest.mark.systems("files-parquet", "files-csv")
def test_rows_that_are_staged_before_they_are_compared_are_checked(harness: Harness) -> None:
    options = {"watermark_column": "at", "expectations": expectations}
    result = load(harness, declare(COLUMNS), "spark", rows(), **options)
    found = {item["name"]: item["failing"] for item in result["quality"]["assertions"] if item["verdict"] == "fail"}
    assert found == REFUSED


@pytest.mark.systems("postgres", "mariadb", "sqlite", "duckdb", "files-parquet")
def test_with_warn_the_load_goes_on_and_says_so(harness: Harness) -> None:
    lane, table = lanes_of(harness)[0], declare(COLUMNS)
    result = load(harness, table, lane, rows(), expectations=expectations)
    assert result.rows_inserted == len(harness.rows(table.spec())) == len(ROWS)
    assert result["quality"]["verdict"] == result.to_dict()["quality"]["verdict"] == "fail"
    found = {item["name"]: item for item in result["quality"]["assertions"]}
    assert {name: item["failing"] for name, item in found.items() if item["verdict"] == "fail"} == REFUSED
    assert found["row_count"]["message"] == "the load has 7, expected are at least 8 and at most 100 rows"
    assert "quality: ratio.between: 1 row outside of 0.1 … 0.9 (for example id=3)" in result.targets[0].notes
    fine = load(harness, declare(COLUMNS), lane, rows()[:1], expectations=lambda t: t.column("id").between(1, 1))
    assert fine["quality"]["verdict"] == "pass"


@pytest.mark.systems("postgres", "mariadb", "sqlite", "duckdb", "delta", "files-parquet")
def test_a_load_without_news_is_fresh_while_its_table_is(harness: Harness) -> None:
    lane, options = (
        lanes_of(harness)[0],
        {"freshness_column": "at", "freshness_sla": "2h", "on_quality_failure": "fail"},
    )
    table = declare({"id": Annotated[BigInt, pk()], "at": TimestampTZ | None})
    new, old = {"id": 1, "at": now() - timedelta(hours=1)}, {"id": 2, "at": now() - timedelta(days=3)}
    with pytest.raises(QualityCheckFailed, match="there is no value at all, and at most 2h is allowed"):
        load(harness, table, lane, [], **options)
    with pytest.raises(QualityCheckFailed, match="the newest value is 3 d"):
        load(harness, table, lane, [old], **options)
    assert load(harness, table, lane, [new], **options)["quality"]["verdict"] == "pass"
    assert load(harness, table, lane, [old], **options)["quality"]["verdict"] == "pass"
    assert load(harness, table, lane, [], **options)["quality"]["verdict"] == "pass"
    with pytest.raises(QualityCheckFailed):  # nothing of the table would be left
        load(harness, table, lane, [old], **{**options, "mode": "truncate"})
    assert len(harness.rows(table.spec())) == 2


@pytest.mark.systems("postgres")
def test_only_the_rows_of_a_merge_are_checked_and_a_dry_run_checks_too(harness: Harness) -> None:
    table = declare({"id": Annotated[BigInt, pk()], "n": Integer | None})
    options = {"mode": "merge", "on_quality_failure": "fail", "expectations": lambda t: t.column("n").between(0, 5)}
    assert pipeline_of(harness, table, [{"id": 1, "n": 9}], **{**options, "on_quality_failure": "warn"}).sync()
    assert pipeline_of(harness, table, [{"id": 2, "n": 1}], **options).sync()["quality"]["verdict"] == "pass"
    with pytest.raises(QualityCheckFailed):
        pipeline_of(harness, table, [{"id": 3, "n": 6}], **options).dry_run()
    assert sorted(row["id"] for row in harness.rows(table.spec())) == [1, 2]


@pytest.mark.systems("duckdb")
def test_targets_of_a_fan_out_are_checked_each_by_itself(harness: Harness, systems: Systems) -> None:
    tables = [
        declare({"id": Annotated[BigInt, pk()], "n": Integer}),
        declare({"id": Annotated[BigInt, pk()], "n": Annotated[Integer, normalize.clamp(0, 5)]}),
    ]
    homes = [harness, systems("sqlite")]

    @ematix.pipeline(
        targets=[Target(connection=home.connection, table=table, mode="append") for home, table in zip(homes, tables, strict=True)],
        name=unique("fan"), expectations=lambda t: t.column("n").between(0, 5),
    )  # fmt: skip
    def fan(spark: Any) -> Any:
        return frame(spark, declare({"id": BigInt, "n": Integer}).spec(), [{"id": 1, "n": 9}])

    told = fan.sync().to_dict()
    assert [target["quality"]["verdict"] for target in told["targets"]] == ["fail", "pass"]
    assert told["quality"]["verdict"] == "fail"
    assert set(told["quality"]["targets"]) == {table.spec().qualified for table in tables}
