"""The run log in MySQL or MariaDB: for workers on many hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from ematix_flow.declare.connections import urls
from ematix_flow.foundation.errors import (
    ConfigError,
    ConnectionFailed,
    FlowError,
    PermissionDenied,
    StorageFull,
    Unreachable,
)
from ematix_flow.foundation.redact import mask, remember_secret, remember_url_secrets
from ematix_flow.run_log.drivers import CONNECT_SECONDS, ELSEWHERE, check_plain_name, require_driver
from ematix_flow.run_log.records import in_utc
from ematix_flow.run_log.sql import RunLogDialect, RunLogSession, SqlRunLog
from ematix_flow.run_log.sql.dialect import insert

STATEMENT_SECONDS = 10
LOCK_SECONDS = 5
_MIGRATION_LOCK = "ematix_flow_run_log"
_BINARY = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
_SETTINGS = (
    "SET time_zone = '+00:00'",
    "SET sql_mode = 'STRICT_ALL_TABLES'",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    f"SET innodb_lock_wait_timeout = {LOCK_SECONDS}",
)
_REFUSED = (1044, 1045, 1142, 1227, 1290, 1698, 1836)
_CONFLICTS = (1205, 1213)
_GONE = (1040, 1053, 1927, 2002, 2003, 2006, 2013, 2055, 3024, *_CONFLICTS)
_FULL = (1021, 1114)
_LONGEST_TIMEOUT = 31_536_000
"""PyMySQL accepts at most a year."""
_TLS_MODES = ("disabled", "preferred", "required", "verify_ca", "verify_identity")


class _MySQLDialect(RunLogDialect):
    mark = "%s"
    schema = "DATABASE()"
    key_type = f"VARCHAR(255) {_BINARY}"
    word_type = f"VARCHAR(64) {_BINARY}"
    text_type = f"LONGTEXT {_BINARY}"
    row_lock = " FOR UPDATE"
    begin_read = begin_write = "START TRANSACTION"
    has_clock = True
    may_vanish = True

    def __init__(self, access: Mapping[str, Any], *, label: str, table_prefix: str) -> None:
        self._pymysql = require_driver("pymysql", package="PyMySQL", extra="runlog-mysql")
        # PyMySQL raises a RuntimeError if the package for an authentication method is missing.
        super().__init__(label=label, errors=(self._pymysql.MySQLError, OSError, RuntimeError))
        self._access = access
        self.prefix = self.table_prefix = check_plain_name(table_prefix, what="table_prefix")

    def connect(self) -> Any:
        raw = self._pymysql.connect(
            charset="utf8mb4",
            autocommit=True,
            **{
                "connect_timeout": CONNECT_SECONDS,
                "read_timeout": STATEMENT_SECONDS,
                "write_timeout": STATEMENT_SECONDS,
                **self._access,
            },
        )
        for setting in _SETTINGS:
            raw.query(setting)
        return raw

    def execute(self, raw: Any, sql: str, values: Sequence[Any]) -> tuple[list[tuple[Any, ...]], int]:
        with raw.cursor() as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall()), cursor.rowcount

    def execute_many(self, raw: Any, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        with raw.cursor() as cursor:
            cursor.executemany(sql, rows)

    def now(self, session: RunLogSession) -> datetime:
        row = session.one("SELECT UTC_TIMESTAMP(6)")
        assert row is not None  # noqa: S101
        return in_utc(row[0])

    def upsert(self, table: str, columns: Sequence[str], keys: Sequence[str]) -> str:
        changed = ", ".join(f"{column} = VALUES({column})" for column in columns if column not in keys)
        return insert(table, columns) + f" ON DUPLICATE KEY UPDATE {changed}"

    def add(self, table: str, columns: Sequence[str]) -> str:
        # Not INSERT IGNORE, which would also truncate a name that is too long.
        return insert(table, columns) + f" ON DUPLICATE KEY UPDATE {columns[0]} = ${table}.{columns[0]}"

    @contextmanager
    def migrating(self, session: RunLogSession) -> Iterator[None]:
        """Hold a named lock of the server: in MySQL every DDL statement commits by itself."""
        got = session.one("SELECT GET_LOCK(?, ?)", _MIGRATION_LOCK, LOCK_SECONDS)
        if not got or got[0] != 1:
            raise Unreachable(f"another process changes the tables of the run log {self.label}", hint="try again")
        try:
            yield
        finally:
            session.run("SELECT RELEASE_LOCK(?)", _MIGRATION_LOCK)

    def create_index(self, session: RunLogSession, name: str, table: str, columns: str) -> None:
        known = session.one(
            "SELECT 1 FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = ? "
            "AND index_name = ? LIMIT 1",
            self.table_prefix + table,
            name,
        )
        if known is None:
            session.run(f"CREATE INDEX {name} ON ${table} ({columns})")

    def is_conflict(self, error: BaseException) -> bool:
        return _number(error) in _CONFLICTS

    def translate(self, error: BaseException) -> FlowError:
        number, message = _number(error), mask(str(error.args[-1]) if error.args else type(error).__name__)
        if number in _REFUSED:
            return PermissionDenied(f"the run log {self.label} refused: {message}", hint=ELSEWHERE)
        if number in _FULL:
            return StorageFull(f"no room left for the run log {self.label}", hint="free some space on the server")
        if number in _GONE or isinstance(error, OSError):
            return Unreachable(f"the run log {self.label} cannot be reached: {message}", hint=ELSEWHERE)
        return ConnectionFailed(f"the run log {self.label} cannot be used: {message}", hint=ELSEWHERE)


class MySQLRunLog(SqlRunLog):
    """A run log in a MySQL or MariaDB database, given by a URL or by PyMySQL's connection arguments."""

    def __init__(
        self,
        url: str | None = None,
        *,
        connect_kwargs: Mapping[str, Any] | None = None,
        table_prefix: str = "",
        create_tables: bool = True,
    ) -> None:
        if not url and not connect_kwargs:
            raise ConfigError("a run log on MySQL needs an address", hint="give mysql://user:password@host/database")
        keywords = dict(connect_kwargs or {})
        remember_secret(keywords.get("password"))
        remember_url_secrets(url or "")
        access = {**(_access(url) if url else {}), **keywords}
        label = mask(url) if url else f"mysql://{access.get('host', 'localhost')}/{access.get('database', '')}"
        super().__init__(_MySQLDialect(access, label=label, table_prefix=table_prefix), create_tables=create_tables)


def _number(error: BaseException) -> int | None:
    return error.args[0] if error.args and isinstance(error.args[0], int) else None


def _access(url: str) -> dict[str, Any]:
    """Return PyMySQL's connection arguments for a URL."""
    try:
        parts = urls.split(url)
    except urls.UrlError as error:
        raise ConfigError(f"the run log's URL {error}", hint="write mysql://user:password@host:3306/database") from None
    if not parts.path:
        raise ConfigError("the run log's URL names no database", hint="write mysql://user:password@host/database")
    params = {name.replace("-", "_"): value for name, value in parts.params.items()}
    access: dict[str, Any] = {
        "host": parts.host.strip("[]") or "localhost",
        "port": int(parts.port or 3306),
        "user": parts.user,
        "password": parts.password,
        "database": parts.path,
    }
    if "connect_timeout" in params:
        access["connect_timeout"] = _seconds(params["connect_timeout"])
    return {**access, **_tls(params)}


def _seconds(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= _LONGEST_TIMEOUT):
        raise ConfigError(
            f"connect_timeout={text} of the run log's URL is no number of seconds", hint="write connect_timeout=5"
        )
    return int(text)


def _tls(params: Mapping[str, str]) -> dict[str, Any]:
    ca = params.get("ssl_ca")
    mode = (params.get("ssl_mode") or ("verify_ca" if ca else "preferred")).lower()
    if mode not in _TLS_MODES:
        raise ConfigError(f"ssl_mode={mode} is not understood", hint=f"use {', '.join(_TLS_MODES)}")
    if mode in ("disabled", "preferred"):
        return {"ssl_disabled": mode == "disabled"}
    import ssl

    context = ssl.create_default_context(cafile=ca)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # server-generated certificates fail the strict check
    context.check_hostname = mode == "verify_identity"
    context.verify_mode = ssl.CERT_NONE if mode == "required" else ssl.CERT_REQUIRED
    return {"ssl": context}
