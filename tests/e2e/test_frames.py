"""`ematix.read`: what it leaves open in the database that it reads from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ematix_flow import Annotated, BigInt, PostgresConnection, SQLiteConnection, ematix, pk
from ematix_flow.declare import registry

OPEN = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"


@pytest.fixture
def big(fresh_postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresConnection]:
    """A table that several tasks read."""
    monkeypatch.setattr("ematix_flow.backends.postgres.source.PAGES_PER_SPLIT", 1)
    for name in ("RUN_LOG_PATH", "LOGS_DIR", "STAGE_DIR"):
        monkeypatch.setenv(f"EMATIX_FLOW_{name}", str(tmp_path / name))
    with psycopg.connect(fresh_postgres, autocommit=True) as session:
        session.execute("CREATE TABLE IF NOT EXISTS big AS SELECT n FROM generate_series(1, 5000) AS n")
    registry.clear()
    yield PostgresConnection("warehouse", url=fresh_postgres)
    registry.clear()


def open_snapshots(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as session:
        return int(session.execute(OPEN).fetchone()[0])  # type: ignore[index]


def test_a_frame_of_a_notebook_leaves_no_snapshot_open(big: PostgresConnection, fresh_postgres: str) -> None:
    frame = ematix.read(big, "big")
    assert open_snapshots(fresh_postgres) == 0
    assert frame.where("n > 4990").count() == 10


@ematix.table(schema="main")
class Numbers:
    n: Annotated[BigInt, pk()]


def test_a_frame_of_a_run_is_read_from_one_snapshot_that_ends_with_it(
    big: PostgresConnection, fresh_postgres: str, tmp_path: Path
) -> None:
    seen: list[int] = []

    @ematix.pipeline(
        target=Numbers, target_connection=SQLiteConnection("shop", path=str(tmp_path / "shop.db")), mode="append"
    )
    def numbers() -> Any:
        frame = ematix.read(big, "big")
        seen.append(open_snapshots(fresh_postgres))
        return frame

    assert numbers.sync().targets[0].rows_inserted == 5000
    assert (seen, open_snapshots(fresh_postgres)) == ([1], 0)
