"""The path inside the database and the path through Spark give the same table, whatever the strategy."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, Integer, Numeric, String, Text, Timestamp, TimestampTZ, ematix, normalize, pk
from ematix_flow.foundation.errors import PlanError
from ematix_flow.transforms import deduplicate_by, filter_where
from tests.contract.conftest import Systems
from tests.contract.loading import columns, counts, day, declare
from tests.harness.base import Harness, canonical

pytestmark = pytest.mark.offers("same_db")
PATHS = ("same_db", "cross_db")
RAW = {"id": BigInt, "name": Text, "price": Numeric[12, 4], "city": Text, "seen": Timestamp, "at": TimestampTZ}
FIRST = [
    (1, "  Ana ", "10.5", "Bonn", 1), (2, None, "7", "", 2), (3, "", "3.005", None, 3), (4, "ÄÖÜ", "0.1", "köln", 4),
    (5, "o'Hara", None, " ", 5), (6, "skip me", "1", "x", 6), (1, "older", "1", "Bonn", 0),
]  # fmt: skip
SECOND = [
    (1, "ana", "10.5", "Bonn", 11), (2, "", "7", None, 12), (3, "new", "-3.005", "Rom", 13), (4, "äöü", "0.1", "KÖLN", 14),
    (7, "😀", "99999.99", "x", 15), (6, "skip me", "1", "x", 16),
]  # fmt: skip


def rows(batch: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    return [
        {
            "id": n,
            "name": name,
            "price": price and Decimal(price),
            "city": city,
            "seen": datetime(2026, 1, 1 + at),
            "at": day(1 + at),
        }
        for n, name, price, city, at in batch
    ]


def target() -> Any:
    return declare(
        {
            "id": Annotated[BigInt, pk()],
            "name": Annotated[Text | None, normalize.trim(), normalize.empty_to_null(), normalize.lower()],
            "price": Numeric[10, 2] | None,
            "city": Annotated[String[40] | None, normalize.trim(), normalize.not_null_or("nowhere")],
            "seen": Timestamp | None,
            "at": TimestampTZ,
        }
    )


def shown(harness: Harness, table: Any, *, times: bool) -> list[tuple[Any, ...]]:
    """Every column but those of the run; times that the run made up only as whether there is one."""
    timed = ("valid_from", "valid_to", "_deleted_at")
    kept = []
    for row in harness.rows(table.spec()):
        moments = {name: canonical(row[name], TimestampTZ()) for name in timed if name in row}
        seen = moments if times else {name: moment is None for name, moment in moments.items()}
        kept.append({**{name: value for name, value in row.items() if name not in ("_loaded_at", "_batch_id")}, **seen})
    return columns(kept, sorted(kept[0]))


def run(harness: Harness, table: Any, source: Any, path: str | None, **options: Any) -> Any:
    decorate = ematix.pipeline(
        target=table, target_connection=harness.connection, source_connection=harness.connection, force_path=path,
        name=f"path_{table.__tablename__}", **options,
    )  # fmt: skip
    return decorate(lambda conn: f"SELECT * FROM {harness.reference(source)}")


NEWEST_FIRST = [deduplicate_by("id", order_by="at desc"), filter_where("name IS NULL OR name <> 'skip me'")]
STRATEGIES: dict[str, dict[str, Any]] = {
    "append": {"mode": "append"},
    "truncate": {"mode": "truncate"},
    "merge": {"mode": "merge"},
    "merge with deletes": {"mode": "merge", "handle_deletes": "soft"},
    "scd2 by event time": {
        "mode": "scd2",
        "event_timestamp_column": "at",
        "compare_columns": ["name", "price", "city"],
    },
    "scd2": {"mode": "scd2", "compare_columns": ["name", "price", "city"]},
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_both_paths_give_the_same_table(harness: Harness, strategy: str) -> None:
    source = declare(RAW).spec()
    tables = {path: target() for path in PATHS}
    batches = [FIRST] if strategy == "append" else [FIRST, SECOND]
    for batch in batches:
        harness.seed(source, rows(batch))
        results = {}
        for path, table in tables.items():
            results[path] = run(
                harness, table, source, path, transforms_pre=NEWEST_FIRST, **STRATEGIES[strategy]
            ).sync()
            assert results[path].targets[0].path == path
        assert counts(results["same_db"]) == counts(results["cross_db"])
    of_events = strategy == "scd2 by event time"
    found = {path: shown(harness, table, times=of_events) for path, table in tables.items()}
    assert found["same_db"] == found["cross_db"]
    assert len(found["same_db"]) >= 5


def test_the_path_inside_the_database_is_chosen_by_itself_and_the_preview_says_so(harness: Harness) -> None:
    source, table = declare({"id": BigInt}).spec(), declare({"id": BigInt})
    harness.seed(source, [{"id": 1}])
    pipeline = run(harness, table, source, None, mode="append")
    planned = pipeline.preview().targets[0]
    assert (planned.path, planned.path_reason) == ("same_db", "source and target are the same database")
    assert "inside the database" in pipeline.preview().to_text()
    assert pipeline.sync().targets[0].path == "same_db"
    assert columns(harness.rows(table.spec()), ("id",)) == [(1,)]


def test_an_incremental_load_inside_the_database_loses_and_doubles_nothing(harness: Harness) -> None:
    source = declare({"id": BigInt, "at": TimestampTZ}).spec()
    table = declare({"id": Annotated[BigInt, pk()], "at": TimestampTZ})
    options = {"mode": "append", "incremental": True, "watermark_column": "at"}
    for newest in (2, 2, 4):
        known = [{"id": n, "at": day(1 + n // 2)} for n in range(newest + 1)]
        harness.seed(source, known)
        assert run(harness, table, source, "same_db", **options).sync().targets[0].path == "same_db"
        assert columns(harness.rows(table.spec()), ("id",)) == [(row["id"],) for row in known]


def test_a_forced_path_that_cannot_be_is_refused_with_the_reason(harness: Harness, systems: Systems) -> None:
    source, table = declare({"id": Text}).spec(), declare({"id": Integer})
    harness.seed(source, [{"id": "1"}])
    with pytest.raises(PlanError, match="not possible: id needs a cast"):
        run(harness, table, source, "same_db", mode="append").sync()
    assert run(harness, table, source, None, mode="append").sync().targets[0].path == "cross_db"
    assert columns(harness.rows(table.spec()), ("id",)) == [(1,)]
    other = systems("duckdb" if harness.name == "sqlite" else "sqlite")
    with pytest.raises(PlanError, match="different systems"):
        _between(harness, other, source, declare({"id": Text})).sync()


def _between(harness: Harness, other: Harness, source: Any, table: Any) -> Any:
    decorate = ematix.pipeline(
        target=table, target_connection=other.connection, source_connection=harness.connection, force_path="same_db",
        mode="append", name=f"between_{table.__tablename__}",
    )  # fmt: skip
    return decorate(lambda conn: f"SELECT * FROM {harness.reference(source)}")
