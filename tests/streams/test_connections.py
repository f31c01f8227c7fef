"""How often a stream connects to its target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from ematix_flow import ObjectStoreLocalConnection, PostgresConnection, run_streaming_pipeline
from ematix_flow.backends.postgres.session import connect
from ematix_flow.families.sql.held_session import SharedSession
from tests.harness.arrivals import put_whole

pytestmark = pytest.mark.usefixtures("every_jar", "homes")


def test_micro_batches_share_the_connections_of_the_driver(
    fresh_postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    really = psycopg.connect

    def counted(*args: Any, **options: Any) -> Any:
        opened.append(really(*args, **options))
        return opened[-1]

    monkeypatch.setattr(psycopg, "connect", counted)
    connections = {}
    for files in (1, 4):
        name = f"rows_{files}"
        (tmp_path / name / "in").mkdir(parents=True)
        for number in range(files):
            put_whole(tmp_path / name / "in" / f"{number}.jsonl", f'{{"n": {number}}}\n')
        opened.clear()
        outcome = run_streaming_pipeline(
            name=name, source=ObjectStoreLocalConnection("files", path=str(tmp_path / name), format="json_lines"),
            source_query="in", target=PostgresConnection("warehouse", url=fresh_postgres),
            target_table=("public", name), max_rows_per_batch=1, once=True,
        )  # fmt: skip
        assert (outcome.total_rows, outcome.iterations) == (files, files)
        connections[files] = len(opened)
        assert all(one.closed for one in opened)  # type: ignore[attr-defined]
    assert connections[4] < connections[1] + 3  # less than one for each micro-batch more; it was five


def test_a_session_that_the_server_has_ended_is_replaced(fresh_postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ematix_flow.families.sql.held_session.IDLE_SECONDS", 0.0)
    held = SharedSession(lambda: connect(PostgresConnection("warehouse", url=fresh_postgres)), reset="DISCARD ALL")
    with held.lend() as session:
        session.execute("CREATE TEMPORARY TABLE leftover (n int)")
        first = session.scalar("SELECT pg_backend_pid()")
    with held.lend() as session:
        assert session.scalar("SELECT pg_backend_pid()") == first
        assert session.scalar("SELECT to_regclass('leftover')") is None
    with psycopg.connect(fresh_postgres, autocommit=True) as other:
        other.execute(f"SELECT pg_terminate_backend({first})")
    with held.lend() as session, held.lend() as another:
        pids = {one.scalar("SELECT pg_backend_pid()") for one in (session, another)}
    assert len(pids) == 2
    assert first not in pids
    held.close()
