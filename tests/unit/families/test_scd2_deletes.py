"""Hard deletes from a history whose versions have expired, in SQLite and without Spark."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, SQLiteConnection, Text, TimestampTZ, ematix, pk
from ematix_flow.backends.sqlite import backend
from ematix_flow.contract.ddl import CreateTable
from ematix_flow.contract.shape import shape_of
from ematix_flow.contract.write import Counts, WriteJob
from ematix_flow.dataplane.parquet_stage import ROOT_VARIABLE
from ematix_flow.declare.strategy import Deletes, Scd2
from ematix_flow.foundation.errors import Brake

DAY = timedelta(days=1)
FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)
BY_LOAD = Scd2(("id",), ("name",), ttl=DAY, deletes=Deletes.HARD)
BY_EVENT = Scd2(("id",), ("name",), event_time="at", ttl=DAY, deletes=Deletes.HARD)
both = pytest.mark.parametrize("strategy", [BY_LOAD, BY_EVENT], ids=["by load", "by event"])


@ematix.table(schema="shop")
class People:
    id: Annotated[BigInt, pk()]
    name: Text | None
    at: TimestampTZ


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Counts]:
    """Load the keys from 1 to `upto`, on a day; every version expires a day after it began."""
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "stages"))
    connection = SQLiteConnection(name="shop", path=str(tmp_path / "shop.db"))

    def perform(strategy: Scd2, upto: int, *, day: int, **more: Any) -> Counts:
        shape = shape_of(People.spec(), strategy)  # type: ignore[attr-defined]
        assert backend.batch_sink is not None
        assert backend.ddl is not None
        sink: Any = backend.batch_sink(connection)
        job = WriteJob(str(uuid.uuid4()), "load", "load/target", shape, strategy, FIRST + day * DAY, **more)
        backend.ddl(connection).apply(shape, [CreateTable(shape.table)])
        opening = sink.begin(job)
        at = f"{FIRST:%Y-%m-%d %H:%M:%S}.000000+00:00"
        numbers = f"WITH n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n LIMIT {max(upto, 1)}) "
        query = f"{numbers}SELECT id, 'a' AS name, '{at}' AS at FROM n WHERE id <= {upto}"
        try:
            result = sink.publish(job, sink.stage_query(job, query), opening)
        except Brake as error:
            sink.settle(job, opening, None, error.what)
            raise
        sink.settle(job, opening, result, None)
        counts: Counts = result.counts
        return counts

    return perform


def left(folder: Path) -> tuple[int, int]:
    """How many versions there are, and how many of them are current."""
    with closing(sqlite3.connect(folder / "shop.db")) as client:
        found: tuple[int, int] = client.execute("SELECT COUNT(*), SUM(is_current) FROM shop_people").fetchone()
    return found


@both
def test_an_empty_source_does_not_delete_a_history_that_has_expired(
    load: Callable[..., Counts], tmp_path: Path, strategy: Scd2
) -> None:
    load(strategy, 3, day=0)
    load(strategy, 3, day=2)
    assert left(tmp_path) == (3, 0)
    with pytest.raises(Brake, match=r"the source is empty, and 3 row\(s\) of shop.people would be deleted"):
        load(strategy, 0, day=3)
    assert left(tmp_path) == (3, 0)
    assert load(strategy, 0, day=3, accept_deletes=3).deleted == 3
    assert left(tmp_path)[0] == 0


@both
def test_the_share_that_may_be_deleted_counts_expired_versions_too(
    load: Callable[..., Counts], tmp_path: Path, strategy: Scd2
) -> None:
    load(strategy, 120, day=0)
    load(strategy, 120, day=2)
    with pytest.raises(Brake, match=r"90 of 120 rows \(75 %\)"):
        load(strategy, 30, day=3)
    assert left(tmp_path) == (120, 0)
    assert load(strategy, 80, day=3).deleted == 40
    assert left(tmp_path) == (80, 0)
