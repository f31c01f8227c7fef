"""Sessions with MySQL and MariaDB: strict, in UTC, one statement sees what others committed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ematix_flow.backends.mysql.errors import translate, translate_login
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.foundation.errors import ConfigError

if TYPE_CHECKING:
    from ematix_flow.declare.connections import MySQLConnection

CONNECT_TIMEOUT_SECONDS = 10
# Modes of the server stay, because people's queries may need them; backslashes must mean what our literals say.
SETTINGS = (
    "SET time_zone = '+00:00', max_error_count = 64, sql_mode = CONCAT(REPLACE(@@sql_mode, 'NO_BACKSLASH_ESCAPES', ''), "
    "',STRICT_ALL_TABLES,STRICT_TRANS_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO')",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)
_TLS_MODES = {"required": True, "verify_ca": True, "verify_identity": True, "preferred": False, "disabled": False}


@dataclass(frozen=True)
class Access:
    """What a driver needs to log in, in this process or in a Spark task."""

    host: str
    port: int
    user: str
    password: str
    database: str
    timeout: int
    tls: bool
    tls_options: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"Access({self.user}@{self.host}:{self.port}/{self.database})"

    @property
    def url(self) -> str:
        """For connectorx, which has no TLS; the socket beside a loopback address is another login."""
        login = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"mysql://{login}@{host}:{self.port}/{quote(self.database, safe='')}?prefer_socket=false"


class MySqlSession(SqlSession):
    """A session that can stop early: PyMySQL would otherwise fetch a whole result for its first rows."""

    def query(self, sql: str, *, limit: int | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        if limit is None:
            return super().query(sql)
        self.execute(f"SET sql_select_limit = {int(limit)}")
        try:
            return super().query(sql, limit=limit)
        finally:
            self.execute("SET sql_select_limit = DEFAULT")


def access(connection: MySQLConnection) -> Access:
    """The connection with every secret in place; hand it to drivers only."""
    address = connection.resolved().address
    given = {name.replace("-", "_"): value for name, value in address.params.items()}
    unknown = sorted(name for name in given if name.startswith("ssl") and name not in ("ssl_ca", "ssl_mode", "sslmode"))
    if unknown:
        raise ConfigError(f"{connection.label}: {', '.join(unknown)} is not understood", hint="use ssl_ca or ssl_mode")
    mode = (given.get("ssl_mode") or given.get("sslmode") or "").lower().replace("-", "_")
    if mode and mode not in _TLS_MODES:
        raise ConfigError(f"{connection.label}: ssl_mode={mode} is not known", hint=f"one of {', '.join(_TLS_MODES)}")
    options: dict[str, Any] = {}
    if given.get("ssl_ca"):
        options = {"ssl_ca": given["ssl_ca"], "ssl_verify_cert": True}
    elif _TLS_MODES.get(mode, False):
        options = {"ssl_verify_cert": mode != "required"}
    if mode == "verify_identity":
        options["ssl_verify_identity"] = True
    elif mode == "disabled":
        options = {"ssl_disabled": True}
    return Access(
        host=address.host,
        port=address.port,
        user=address.user,
        password=address.password,
        database=address.database,
        timeout=int(given.get("connect_timeout") or CONNECT_TIMEOUT_SECONDS),
        tls=bool(options) and mode != "disabled",
        tls_options=options,
    )


def login(who: Access, **options: Any) -> Any:
    """A PyMySQL connection with our settings."""
    try:
        import pymysql
        from pymysql.constants import CLIENT
    except ImportError as exc:
        raise ConfigError("MySQL needs PyMySQL", hint='pip install "ematix-flow-spark[mysql]"') from exc
    try:
        raw = pymysql.connect(
            host=who.host,
            port=who.port,
            user=who.user,
            password=who.password,
            database=who.database or None,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=who.timeout,
            client_flag=CLIENT.FOUND_ROWS,  # an UPDATE counts the rows it met, as everywhere else
            **who.tls_options,
            **options,
        )
        for setting in SETTINGS:
            raw.query(setting)
    except (pymysql.MySQLError, OSError, RuntimeError) as exc:
        raise translate_login(exc) from exc
    return raw


def connect(connection: MySQLConnection) -> SqlSession:
    """An autocommit session."""
    return MySqlSession(login(access(connection)), translate=translate)


def identity(connection: MySQLConnection) -> tuple[str, ...]:
    """Host, port, database and user: the same means the same database."""
    who = access(connection)
    return ("mysql", who.host, str(who.port), who.database, who.user)
