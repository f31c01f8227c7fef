"""Sessions whose connection is lost, shown with SQLite: like psycopg, it gives no cursor for a closed connection."""

from __future__ import annotations

import sqlite3

import pytest

from ematix_flow.backends.sqlite.errors import translate
from ematix_flow.families.sql.held_session import SharedSession
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.foundation.errors import FlowError, Unreachable


def opened() -> SqlSession:
    return SqlSession(sqlite3.connect(":memory:", isolation_level=None), translate=translate)


def _lose(session: SqlSession) -> None:
    session.raw.close()
    raise Unreachable("the server went away")


def test_the_error_of_a_lost_connection_is_not_replaced_by_that_of_its_rollback() -> None:
    session = opened()
    with pytest.raises(Unreachable, match="went away"), session.transaction():
        _lose(session)
    with pytest.raises(FlowError):
        session.scalar("SELECT 1")


def test_a_held_session_that_is_lost_is_replaced_and_one_that_only_failed_is_reset() -> None:
    held = SharedSession(opened, reset="DROP TABLE IF EXISTS leftover")
    failed = held.lend()
    failed.execute("CREATE TABLE leftover (n int)")
    with pytest.raises(FlowError):
        failed.execute("no SQL")
    failed.close()
    again = held.lend()
    assert again.raw is failed.raw
    assert again.rows("SELECT name FROM sqlite_master") == []
    again.raw.close()
    again.close()
    with held.lend() as session:
        assert session.raw is not failed.raw
        assert session.scalar("SELECT 1") == 1
    held.close()
