"""Windows: a source gives exactly what lies between the edges, a target takes each window once."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import pytest

from ematix_flow import BigInt, Date, Timestamp, TimestampTZ, ematix
from ematix_flow.declare.windows import DataWindow
from ematix_flow.engine.batch import pipeline_run
from ematix_flow.engine.batch.result import Result
from ematix_flow.engine.batch.windows import BackfillWindow
from ematix_flow.run_log import InMemoryRunLog
from ematix_flow.run_log.intervals import IntervalLease
from tests.contract.conftest import Systems
from tests.contract.loading import day, declare
from tests.contract.test_sources import target as target  # where rows go that this module reads
from tests.harness.base import Harness, Row

INSTANT = timedelta(microseconds=1)
MOMENTS = [
    moment
    for edge in (day(2), day(2, 6), day(3), day(3, 6))
    for moment in (edge - INSTANT, edge, edge + timedelta(hours=1))
]
ROWS: list[Row] = [
    {"id": number, "came": moment, "seen": moment.replace(tzinfo=None), "on_day": moment.date()}
    for number, moment in enumerate(MOMENTS)
]


def visits() -> Any:
    return declare({"id": BigInt, "came": TimestampTZ, "seen": Timestamp, "on_day": Date})


def load(declared: Any, window: DataWindow, *, again: str = "") -> Result:
    """One window, by somebody whose ledger is empty."""
    log, spec = InMemoryRunLog(), declared.spec
    hold = IntervalLease(log, spec.name, window, again=again)
    assert hold.claim()
    done = pipeline_run.run(spec, run_log=log, window=BackfillWindow(spec, hold))
    assert [item.status for item in log.intervals(spec.name)] == ["done"]
    return done


@pytest.mark.parametrize(
    ("column", "window"),
    [
        ("came", DataWindow(day(2, 6), day(3, 6))),
        ("seen", DataWindow(day(2, 6), day(3, 6))),
        ("on_day", DataWindow(day(2), day(3))),
    ],
)
def test_a_window_is_read_from_its_start_up_to_its_end(
    harness: Harness, target: Harness, systems: Systems, column: str, window: DataWindow
) -> None:
    given, loaded = visits().spec(), visits()
    harness.seed(given, ROWS)
    relation = harness.reference(given)

    @ematix.pipeline(target=loaded, target_connection=target.connection, source_connection=harness.connection,
                     mode="append", name=f"window_{given.name}")  # fmt: skip
    def windowed() -> str:
        return f"SELECT id, came, seen, on_day FROM {relation} WHERE {column} >= {{start}} AND {column} < {{end}}"

    load(windowed, window)
    expected = {row["id"] for row in ROWS if window.start <= _instant(row[column]) < window.end}
    assert 0 < len(expected) < len(ROWS)
    assert sorted(row["id"] for row in target.rows(loaded.spec())) == sorted(expected)


def _instant(value: datetime | date) -> datetime:
    found = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    return found if found.tzinfo else found.replace(tzinfo=day(1).tzinfo)


def counted(harness: Harness, mode: str, numbers: dict[str, int]) -> tuple[Any, Any]:
    """A pipeline that gives one row for each window, with a number that changes."""
    table = declare({"id": BigInt, "number": BigInt})
    options = {"keys": ["id"]} if mode == "merge" else {}

    @ematix.pipeline(target=table, target_connection=harness.connection, mode=mode,
                     name=f"count_{table.__tablename__}", **options)  # fmt: skip
    def counting(spark: Any, start: datetime, end: datetime) -> Any:
        return spark.createDataFrame([(start.day, numbers["now"])], "id BIGINT, number BIGINT")

    return counting, table


@pytest.mark.offers("append")
def test_a_window_is_appended_once_whichever_run_repeats_it(harness: Harness, spark: Any) -> None:
    numbers = {"now": 1}
    counting, table = counted(harness, "append", numbers)
    assert load(counting, DataWindow(day(2), day(3))).targets[0].rows_inserted == 1
    numbers["now"] = 2
    again = load(counting, DataWindow(day(2), day(3))).targets[0]
    assert "already published by run" in " ".join(again.notes)
    load(counting, DataWindow(day(3), day(4)))
    found = sorted((row["id"], row["number"]) for row in harness.rows(table.spec()))
    assert found == [(2, 1), (3, 2)]


@pytest.mark.offers("merge")
def test_a_window_is_merged_once_unless_it_is_asked_for_again(harness: Harness, spark: Any) -> None:
    numbers = {"now": 1}
    counting, table = counted(harness, "merge", numbers)
    load(counting, DataWindow(day(2), day(3)))
    numbers["now"] = 2
    load(counting, DataWindow(day(2), day(3)))
    assert [(row["id"], row["number"]) for row in harness.rows(table.spec())] == [(2, 1)]
    load(counting, DataWindow(day(2), day(3)), again="redo:0815")
    assert [(row["id"], row["number"]) for row in harness.rows(table.spec())] == [(2, 2)]
