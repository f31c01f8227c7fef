"""Statistics of Parquet files: what is found, what is kept, and that nothing stale or damaged is used."""

from __future__ import annotations

import datetime
import json
import os
import random
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ematix_flow.sql.joins import file_statistics, table_statistics
from ematix_flow.sql.joins.file_statistics import (
    LoggedStatistics,
    TableFiles,
    ValueRange,
    distinct_estimate,
    merged,
    table_stats,
)
from ematix_flow.sql.joins.table_statistics import ColumnStats, TableStats

_OLD = 10**9
"""Seconds to put a file's time back by, so that it does not count as one that may change in the same moment."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EMATIX_FLOW_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "statistics"


def written(file: Path, columns: dict[str, Any], *, age: int = 10, **options: Any) -> TableFiles:
    pq.write_table(pa.table(columns), file, **options)
    os.utime(file, (time.time() - age, time.time() - age))
    about = file.stat()
    return TableFiles(frozenset({(str(file), about.st_mtime_ns, about.st_size)}), (file,))


def found(table: TableFiles, *names: str) -> TableStats:
    made = table_stats(table, names)
    assert made is not None
    return made


def column(tmp_path: Path, values: Any) -> ColumnStats:
    return found(written(tmp_path / "t.parquet", {"v": values}), "v").columns["v"]


def test_rows_ranges_nulls_and_distinct_values_are_found(tmp_path: Path) -> None:
    table = written(tmp_path / "t.parquet", {"id": list(range(5000)), "v": [1, None] * 2500}, row_group_size=500)
    about = found(table, "id", "v")
    assert (about.rows, about.size, about.names) == (5000, table.size, ("id", "v"))
    assert (about.columns["id"].low, about.columns["id"].high, about.columns["id"].nulls) == (0, 4999, 0)
    assert about.columns["id"].distinct == 5000
    assert (about.columns["v"].nulls, about.columns["v"].distinct) == (2500, 1)
    assert len(about.columns["id"].sample) == len(about.columns["v"].sample) == 1000


@pytest.mark.parametrize(
    ("values", "kind", "low", "high"),
    [
        (pa.array([Decimal("1.50"), Decimal("-2.25"), None]), table_statistics.DECIMAL, -2.25, 1.5),
        (pa.array([Decimal("1.5")], pa.decimal128(38, 2)), "decimal128(38, 2)", 1.5, 1.5),
        (pa.array([datetime.date(1970, 1, 3), datetime.date(1969, 12, 31)]), table_statistics.DATE, -1, 2),
        (
            pa.array([datetime.datetime(1970, 1, 1, 0, 0, 1)], pa.timestamp("us")),
            table_statistics.TIMESTAMP,
            10**6,
            10**6,
        ),
        (
            pa.array([datetime.datetime(1970, 1, 1, 0, 0, 1)], pa.timestamp("ms", "UTC")),
            table_statistics.TIMESTAMP,
            10**6,
            10**6,
        ),
        (pa.array(["b", "a", None, "z" * 500]), table_statistics.TEXT, "a", "z" * table_statistics.MOST_TEXT),
        (pa.array(["x", "y"]).dictionary_encode(), table_statistics.TEXT, "x", "y"),
        (pa.array([True, None, False]), table_statistics.BOOLEAN, 0, 1),
        (pa.array([2.5, 1.0]), table_statistics.REAL, 1.0, 2.5),
        (pa.array([2**63 - 1, -(2**63)]), table_statistics.INTEGER, -(2**63), 2**63 - 1),
        (pa.array([None, None], pa.int32()), table_statistics.INTEGER, None, None),
        (pa.array([], pa.string()), table_statistics.TEXT, None, None),
        (pa.array([{"a": 1}]), table_statistics.OTHER, None, None),
        (pa.array([b"x"]), table_statistics.OTHER, None, None),
    ],
)
def test_every_type_has_a_range(tmp_path: Path, values: Any, kind: str, low: Any, high: Any) -> None:
    about = column(tmp_path, values)
    assert (about.kind, about.low, about.high) == (kind, low, high)


def test_a_number_that_is_none_has_no_range_and_no_sample(tmp_path: Path) -> None:
    about = column(tmp_path, pa.array([float("nan"), float("inf"), 1.0]))
    assert [value for value in about.sample if value is not None] == [1.0]
    assert about.high is None


def test_a_row_group_of_nulls_hides_no_range(tmp_path: Path) -> None:
    table = written(tmp_path / "t.parquet", {"v": [None] * 100 + list(range(100))}, row_group_size=100)
    about = found(table, "v").columns["v"]
    assert (about.low, about.high, about.nulls) == (0, 99, 100)


def test_files_that_do_not_agree_on_a_type_tell_nothing(tmp_path: Path) -> None:
    first, second = (written(tmp_path / f"{name}.parquet", {"v": [name]}) for name in (1, "a"))
    both = TableFiles(frozenset({*first.stamp, *second.stamp}), first.files + second.files)
    assert found(both, "v").columns["v"] == ColumnStats(table_statistics.OTHER)


def test_a_log_answers_without_the_footers_of_every_file(tmp_path: Path) -> None:
    table = written(tmp_path / "t.parquet", {"v": [1, 2, 3]})
    logged = TableFiles(table.stamp, table.files, ("v",), LoggedStatistics(1000, lambda name: ValueRange(0, 99, 7)))
    about = found(logged, "v")
    assert (about.rows, about.columns["v"].high, about.columns["v"].nulls) == (1000, 99, 7)


def test_statistics_are_kept_and_taken_from_there(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = written(tmp_path / "t.parquet", {"a": [1, 2], "b": ["x", "y"]})
    before = found(table, "a")
    assert len(list(cache.iterdir())) == 1
    both = found(table, "b")
    assert set(both.columns) == {"a", "b"}
    monkeypatch.setattr(file_statistics, "_collected", None)
    assert found(table, "a", "b") == both
    assert both.columns["a"] == before.columns["a"]


def test_statistics_of_a_changed_file_are_collected_anew(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    assert found(written(file, {"v": [1, 2]}), "v").rows == 2
    about = found(written(file, {"v": [7, 8, 9]}, age=9), "v")
    assert (about.rows, about.columns["v"].low) == (3, 7)


def test_a_file_that_may_still_change_is_not_kept(tmp_path: Path, cache: Path) -> None:
    found(written(tmp_path / "t.parquet", {"v": [1]}, age=-1), "v")
    assert not cache.exists()


@pytest.mark.parametrize(
    "damaged",
    ["", "{", "[]", "null", '"x"', '{"rows": -1}', '{"rows": 1, "size": 1, "kinds": {}, "columns": {"v": 3}}'],
)
def test_a_damaged_cache_is_collected_anew(tmp_path: Path, cache: Path, damaged: str) -> None:
    table = written(tmp_path / "t.parquet", {"v": [1, 2]})
    right = found(table, "v")
    (kept,) = cache.iterdir()
    kept.write_text(damaged)
    assert found(table, "v") == right
    assert json.loads(kept.read_text())["rows"] == 2


def test_a_cache_that_cannot_be_written_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "blocked").write_text("a file where the folder should be")
    monkeypatch.setenv("EMATIX_FLOW_CACHE", str(tmp_path / "blocked"))
    table = written(tmp_path / "t.parquet", {"v": [1, 2]})
    assert found(table, "v") == found(table, "v")


def test_too_many_files_are_not_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_statistics, "MOST_FILES", 0)
    assert table_stats(written(tmp_path / "t.parquet", {"v": [1]}), ("v",)) is None


def test_a_bound_that_one_part_does_not_tell_is_not_known() -> None:
    assert merged([ValueRange(1, 5, 0), ValueRange(None, 9, None)]) == ValueRange(None, 9, None)
    assert merged([ValueRange(1, 5, 0), ValueRange("a", "b", 1)]) == ValueRange(None, None, 1)
    assert merged([ValueRange(1, 5, 0), ValueRange(nulls=3, is_empty=True)]) == ValueRange(1, 5, 3)
    assert merged([]) == ValueRange(None, None, 0)


def test_distinct_values_are_estimated_from_stretches() -> None:
    sorted_runs = [[value // 4 for value in range(start, start + 400)] for start in range(0, 40_000, 4000)]
    assert distinct_estimate(sorted_runs, 40_000) == pytest.approx(10_000, rel=0.01)
    few = [[value % 7 for value in range(1000)] for _ in range(3)]
    assert distinct_estimate(few, 1_000_000) == pytest.approx(7)
    chance = random.Random(1)
    scattered = [[chance.randrange(30_000) for _ in range(2000)] for _ in range(5)]
    assert distinct_estimate(scattered, 1_000_000) == pytest.approx(30_000, rel=0.2)
    assert distinct_estimate([[None, None]], 10) is None
    assert distinct_estimate([], 0) is None
