"""The run log in PostgreSQL: for workers on many hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from ematix_flow.foundation.errors import ConnectionFailed, FlowError, PermissionDenied, StorageFull, Unreachable
from ematix_flow.foundation.redact import mask, remember_url_secrets
from ematix_flow.run_log.drivers import CONNECT_SECONDS, ELSEWHERE, check_plain_name, require_driver
from ematix_flow.run_log.records import in_utc
from ematix_flow.run_log.sql import RunLogDialect, RunLogSession, SqlRunLog

# Set in each transaction, because a connection pooler may route every transaction to another session.
_BOUNDS = "; SET LOCAL statement_timeout = '10s'; SET LOCAL lock_timeout = '5s'"
_MIGRATION_LOCK = 6_021_023_001
_REFUSED = ("28000", "28P01", "42501", "25006")
_CONFLICTS = ("40001", "40P01", "55P03")
_OTHER_SPELLINGS = ("postgresql+psycopg://", "postgresql+psycopg2://")


class _PostgresDialect(RunLogDialect):
    mark = "%s"
    key_type = word_type = text_type = 'TEXT COLLATE "C"'
    row_lock = " FOR UPDATE"
    begin_read = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY{_BOUNDS}"
    begin_write = f"BEGIN ISOLATION LEVEL READ COMMITTED{_BOUNDS}"
    has_clock = True
    may_vanish = True

    def __init__(self, dsn: str, schema: str) -> None:
        self._psycopg = require_driver("psycopg", package="psycopg", extra="runlog-postgres")
        super().__init__(label=mask(dsn), errors=(self._psycopg.Error, OSError, UnicodeError))
        self._dsn = dsn
        self._quoted = f'"{check_plain_name(schema, what="schema")}"'
        self.prefix = f"{self._quoted}."
        self.schema = f"'{schema}'"

    def connect(self) -> Any:
        return self._psycopg.connect(
            self._dsn,
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
            application_name="ematix-flow run log",
            prepare_threshold=None,
        )

    def execute(self, raw: Any, sql: str, values: Sequence[Any]) -> tuple[list[tuple[Any, ...]], int]:
        cursor = raw.execute(sql, values or None)
        return cursor.fetchall() if cursor.description else [], cursor.rowcount

    def execute_many(self, raw: Any, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        with raw.cursor() as cursor:
            cursor.executemany(sql, rows)

    def now(self, session: RunLogSession) -> datetime:
        row = session.one("SELECT clock_timestamp()")
        assert row is not None  # noqa: S101
        return in_utc(row[0])

    @contextmanager
    def migrating(self, session: RunLogSession) -> Iterator[None]:
        with super().migrating(session):
            session.run("SELECT pg_advisory_xact_lock(?)", _MIGRATION_LOCK)
            if session.one(f"SELECT 1 FROM information_schema.schemata WHERE schema_name = {self.schema}") is None:
                session.run(f"CREATE SCHEMA IF NOT EXISTS {self._quoted}")
            yield

    def is_conflict(self, error: BaseException) -> bool:
        return getattr(error, "sqlstate", None) in _CONFLICTS

    def translate(self, error: BaseException) -> FlowError:
        state = getattr(error, "sqlstate", None) or ""
        message = mask(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)
        if state in _REFUSED or "password authentication failed" in message or "no password supplied" in message:
            return PermissionDenied(f"the run log {self.label} refused: {message}", hint=ELSEWHERE)
        if state == "53100":
            return StorageFull(f"no room left for the run log {self.label}", hint="free some space on the server")
        if state.startswith(("57", "08", "53", "40", "55")) or (not state and self._is_network(error)):
            return Unreachable(f"the run log {self.label} cannot be reached: {message}", hint=ELSEWHERE)
        return ConnectionFailed(f"the run log {self.label} cannot be used: {message}", hint=ELSEWHERE)

    def _is_network(self, error: BaseException) -> bool:
        """Return whether it is a network error: login errors also have no SQLSTATE, but contain the server's FATAL."""
        return isinstance(error, (self._psycopg.OperationalError, OSError)) and "FATAL" not in str(error)


class PostgresRunLog(SqlRunLog):
    """A run log in a schema of a PostgreSQL database; `dsn` is a URL or libpq's `name=value` form."""

    def __init__(self, dsn: str, *, schema: str = "public", create_tables: bool = True) -> None:
        remember_url_secrets(dsn)
        for spelling in _OTHER_SPELLINGS:
            if dsn.startswith(spelling):
                dsn = "postgresql://" + dsn[len(spelling) :]
        super().__init__(_PostgresDialect(dsn, schema), create_tables=create_tables)
