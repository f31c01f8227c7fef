"""How many jobs Spark runs for a tiny load: each costs more than the rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import pytest

from ematix_flow import (
    BigInt,
    Date,
    DeltaLocalConnection,
    DuckDBConnection,
    Integer,
    Numeric,
    ObjectStoreLocalConnection,
    SQLiteConnection,
    Text,
    Timestamp,
    ematix,
    pk,
    spark_session,
)
from ematix_flow.foundation.errors import BadValue
from tests.contract import native
from tests.contract.loading import unique

pytestmark = [
    pytest.mark.skipif(native.is_native(), reason="counts jobs of Spark's scheduler"),
    pytest.mark.embedded("counts jobs of Spark's scheduler"),
]
ORDERS = "id,placed,note,amount,day\n1,2024-01-01 10:00:00,1.50,2.25,2024-01-01\n2.0,2024-01-01T10:00:00+02:00,,3,2024-01-02\n"


@ematix.table(schema="raw", name="orders")
class Orders:
    id: BigInt
    placed: Timestamp
    note: Text | None
    amount: Numeric[9, 2]
    day: Date


def jobs_of(work: Callable[[], Any]) -> int:
    """Run some work and return how many jobs it took."""
    context = spark_session(["delta"]).sparkContext
    scheduler = context._jsc.sc().dagScheduler()
    before = scheduler.numTotalJobs()
    work()
    return int(scheduler.numTotalJobs() - before)


def loading(tmp_path: Path, text: str, target: Any, table: Any = Orders) -> Callable[[], Any]:
    folder = tmp_path / "in"
    folder.mkdir(exist_ok=True)
    (folder / "orders.csv").write_text(text)
    source = ObjectStoreLocalConnection(unique("csv"), path=str(folder), format="csv")

    @ematix.pipeline(
        name=unique("load"), target=table, source_connection=source, target_connection=target, mode="append"
    )
    def load() -> str:
        return "SELECT * FROM orders"

    return load


def test_a_tiny_csv_load_is_one_job(tmp_path: Path) -> None:
    lake = ObjectStoreLocalConnection(unique("lake"), path=str(tmp_path / "out"), format="parquet")
    assert jobs_of(loading(tmp_path, ORDERS, lake)) == 1
    rows = spark_session().read.parquet(str(tmp_path / "out" / "raw" / "orders")).orderBy("id").collect()
    found = [(row["id"], row["placed"].isoformat(), row["note"], str(row["amount"])) for row in rows]
    assert found == [(1, "2024-01-01T10:00:00", "1.50", "2.25"), (2, "2024-01-01T08:00:00", None, "3.00")]
    house = DuckDBConnection(unique("house"), path=str(tmp_path / "house.duckdb"))
    assert jobs_of(loading(tmp_path, ORDERS, house)) == 1


@pytest.mark.parametrize(
    ("column", "bad"), [("id", "1.5"), ("id", "x"), ("day", "2024"), ("placed", "20240101"), ("amount", "much")]
)
def test_a_text_that_is_no_value_of_the_declared_type_is_refused(tmp_path: Path, column: str, bad: str) -> None:
    names = ORDERS.splitlines()[0].split(",")
    values = dict(zip(names, ORDERS.splitlines()[1].split(","), strict=True)) | {column: bad}
    lake = ObjectStoreLocalConnection(unique("lake"), path=str(tmp_path / "out"), format="parquet")
    text = f"{','.join(names)}\n{','.join(values[name] for name in names)}\n"
    with pytest.raises(BadValue, match=column):
        loading(tmp_path, text, lake)()


def test_types_found_in_a_file_are_found_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "n.csv"
    connection = ObjectStoreLocalConnection(unique("csv"), path=str(tmp_path), format="csv")
    from ematix_flow.backends.catalog import backend_for

    def kinds() -> dict[str, str]:
        spark_session()
        plan = (
            backend_for(connection)
            .batch_source(connection)
            .plan("SELECT a, b FROM n WHERE a IS NOT NULL", parallelism=1)
        )
        return {column.name: str(column.type) for column in plan.columns}

    def written(text: str, age: int) -> None:
        import os
        import time

        file.write_text(text)
        moment = time.time() - age
        os.utime(file, (moment, moment))

    written("a,b\n1,2\n", 100)
    assert kinds() == {"a": "BigInt", "b": "BigInt"}
    assert jobs_of(kinds) == 0
    written("a,b\n1,x\n", 50)
    assert kinds() == {"a": "BigInt", "b": "Text"}
    written("b,a\n1,x\n", 20)
    assert kinds() == {"a": "Text", "b": "BigInt"}


@ematix.table(schema="raw", name="people")
class People:
    id: Annotated[Integer, pk()]
    name: Text | None
    seen: Timestamp


def people_of(file: Path, *rows: tuple[int, str, str]) -> None:
    with closing(sqlite3.connect(file)) as shop, shop:
        shop.execute("DROP TABLE IF EXISTS people")
        shop.execute("CREATE TABLE people (id INTEGER, name TEXT, seen TIMESTAMP)")
        shop.executemany("INSERT INTO people VALUES (?, ?, ?)", rows)


def jobs_into_delta(
    folder: Path, mode: str, lane: str, *loads: list[tuple[int, str, str]], **options: Any
) -> list[int]:
    """Load these rows one after the other into one table, and return how many jobs each load took."""
    shop = SQLiteConnection(unique("shop"), path=str(folder / "shop.db"))
    lake = DeltaLocalConnection(unique("lake"), path=str(folder / "lake"))

    @ematix.pipeline(name=unique("load"), target=People, source_connection=shop, target_connection=lake, mode=mode,
                     force_lane=lane, **options)  # fmt: skip
    def load() -> str:
        return "SELECT id, name, seen FROM people"

    jobs = []
    for rows in loads:
        people_of(folder / "shop.db", *rows)
        jobs.append(jobs_of(load))
    return jobs


def stored_in(folder: Path) -> Any:
    return spark_session(["delta"]).read.format("delta").load(str(folder / "lake" / "raw" / "people"))


def test_a_tiny_append_to_delta_takes_a_job(tmp_path: Path) -> None:
    """It stages the rows; a new table is an entry in a log."""
    first = [(1, "a", "2024-01-01 00:00:00"), (2, "b", "2024-01-01 00:00:00")]
    second = [(1, "A", "2024-01-02 00:00:00"), (2, "b", "2024-01-01 00:00:00"), (3, "c", "2024-01-02 00:00:00")]
    assert jobs_into_delta(tmp_path, "append", "spark", first, second) == [1, 1]
    assert stored_in(tmp_path).count() == 5


@pytest.mark.parametrize("lane", ["spark", "arrow"])
def test_a_tiny_incremental_append_to_delta_takes_two_jobs(tmp_path: Path, lane: str) -> None:
    """One stages the rows, the other writes those that are not there yet; the first load has nothing to compare."""
    days = [(number, "a", f"2024-01-{number:02} 00:00:00") for number in range(1, 31)]
    loads = (days[:10], days[:20], days[:20], days[:30])
    options = {"incremental": True, "watermark_column": "seen"}
    assert jobs_into_delta(tmp_path, "append", lane, *loads, **options) == [1, 2, 2, 2]
    assert sorted(row["id"] for row in stored_in(tmp_path).collect()) == list(range(1, 31))


@pytest.mark.parametrize("lane", ["spark", "arrow"])
@pytest.mark.parametrize(("mode", "versions"), [("merge", 600), ("scd2", 1000)])
def test_a_small_delta_table_takes_two_jobs(tmp_path: Path, mode: str, versions: int, lane: str) -> None:
    """One stages the rows, the other writes what the table becomes."""

    def rows(count: int, name: str) -> list[tuple[int, str, str]]:
        return [(number, name if number < 400 else "same", "2024-01-01 00:00:00") for number in range(count)]

    assert jobs_into_delta(tmp_path, mode, lane, rows(500, "a"), rows(600, "b"), rows(600, "b")) == [2, 2, 2]
    assert stored_in(tmp_path).count() == versions
    assert stored_in(tmp_path).where("name = 'b'").count() == 400


def test_a_small_history_by_event_time_takes_three_jobs(tmp_path: Path) -> None:
    """One stages the rows, one writes what is observed, one what the table becomes."""

    def rows(name: str, day: int) -> list[tuple[int, str, str]]:
        return [
            (number, name if number < 20 else "same", f"2024-01-0{day if number < 20 else 1} 00:00:00")
            for number in range(500)
        ]

    loads = (rows("a", 1), rows("b", 2), rows("b", 2), rows("late", 1))
    jobs = jobs_into_delta(tmp_path, "scd2", "spark", *loads, event_timestamp_column="seen")
    assert jobs == [3, 3, 3, 3]
    assert stored_in(tmp_path).where("is_current").count() == 500
    assert stored_in(tmp_path).where("name = 'b'").count() == 20
