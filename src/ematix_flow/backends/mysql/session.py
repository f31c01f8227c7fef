"""Sessions with MySQL and MariaDB: strict mode, UTC, READ COMMITTED."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ematix_flow.backends.mysql.errors import translate, translate_login
from ematix_flow.declare.connections import MySQLConnection
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.foundation.drivers import require_driver
from ematix_flow.foundation.errors import ConfigError, FlowError

if TYPE_CHECKING:
    import ssl


CONNECT_TIMEOUT_SECONDS = 10
# The server's own modes stay, because users' queries may need them; our literals need backslash escapes.
_MODES = "STRICT_ALL_TABLES,STRICT_TRANS_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO"
SETTINGS = (
    "SET time_zone = '+00:00', max_error_count = 64",
    f"SET sql_mode = CONCAT(REPLACE(@@sql_mode, 'NO_BACKSLASH_ESCAPES', ''), ',{_MODES}')",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)
# Keys differ by case, accents and trailing blanks: the collation must compare bytes and must not pad.
# MySQL before 8.0.17 has none that does both; there, only spellings that Unicode calls equivalent are one key.
_MARIADB_COLLATION = "utf8mb4_nopad_bin"
_MYSQL_COLLATION = "utf8mb4_0900_bin"
_OLD_MYSQL_COLLATION = "utf8mb4_0900_as_cs"
_ENCRYPTED = ("required", "verify_ca", "verify_identity")
_TLS_MODES = ("disabled", "preferred", *_ENCRYPTED)
_TLS_PARAMETERS = ("ssl_ca", "ssl_mode", "sslmode")


@dataclass(frozen=True)
class MySqlLogin:
    """The login data of one connection, for drivers in this process or in a Spark task."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    timeout: int
    tls_mode: str
    tls_ca: str | None

    @property
    def encrypted(self) -> bool:
        """Return whether all traffic must be encrypted."""
        return self.tls_mode in _ENCRYPTED

    @property
    def url(self) -> str:
        """Return the URL for connectorx, which has no TLS; a socket, the default on loopback, is another login."""
        user = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"mysql://{user}@{host}:{self.port}/{quote(self.database, safe='')}?prefer_socket=false"


class MySqlSession(SqlSession):
    """A session with a server-side row limit: PyMySQL would otherwise fetch the whole result for its first rows."""

    def query(self, sql: str, *, limit: int | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        if limit is None:
            return super().query(sql)
        self.execute(f"SET sql_select_limit = {int(limit)}")
        try:
            return super().query(sql, limit=limit)
        finally:
            self.execute("SET sql_select_limit = DEFAULT")


def login_of(connection: MySQLConnection) -> MySqlLogin:
    """Return the login data with all secrets resolved; pass it to drivers only."""
    address = connection.resolved().address
    parameters = {name.replace("-", "_"): value for name, value in address.params.items()}
    mode = (parameters.get("ssl_mode") or parameters.get("sslmode") or "").lower().replace("-", "_")
    unknown = [name for name in parameters if name.startswith("ssl") and name not in _TLS_PARAMETERS]
    if unknown or (mode and mode not in _TLS_MODES):
        wrong = unknown[0] if unknown else f"ssl_mode={mode}"
        raise ConfigError(
            f"{connection.label}: {wrong} is not understood",
            hint=f"use ssl_ca, or ssl_mode with {', '.join(_TLS_MODES)}",
        )
    return MySqlLogin(
        host=address.host,
        port=address.port,
        user=address.user,
        password=address.password,
        database=address.database,
        timeout=int(parameters.get("connect_timeout") or CONNECT_TIMEOUT_SECONDS),
        tls_mode=mode or ("verify_ca" if parameters.get("ssl_ca") else ""),
        tls_ca=parameters.get("ssl_ca"),
    )


def open_connection(data: MySqlLogin, **options: Any) -> Any:
    """Return a PyMySQL connection with our session settings."""
    pymysql = require_driver("pymysql", needed_by="MySQL", package="PyMySQL", extra="mysql")
    try:
        raw = pymysql.connect(
            host=data.host,
            port=data.port,
            user=data.user,
            password=data.password.encode(),
            database=data.database or None,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=data.timeout,
            client_flag=pymysql.constants.CLIENT.FOUND_ROWS,  # an UPDATE returns the rows matched, as in other databases
            ssl=_tls(data),
            ssl_disabled=data.tls_mode == "disabled",
            **options,
        )
        for setting in SETTINGS:
            raw.query(setting)
    except (pymysql.MySQLError, OSError, RuntimeError) as exc:
        raise translate_login(exc) from exc
    return raw


def _tls(data: MySqlLogin) -> ssl.SSLContext | None:
    if not data.encrypted:
        return None
    import ssl

    context = ssl.create_default_context(cafile=data.tls_ca)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # self-signed certificates of servers do not meet the strict rules
    context.check_hostname = data.tls_mode == "verify_identity"
    context.verify_mode = ssl.CERT_NONE if data.tls_mode == "required" else ssl.CERT_REQUIRED
    return context


def connect(connection: MySQLConnection) -> SqlSession:
    """Return an autocommit session."""
    return MySqlSession(open_connection(login_of(connection)), translate=translate)


def identity(connection: MySQLConnection) -> tuple[str, ...]:
    """Return host, port, database and user: equal values mean the same database."""
    data = login_of(connection)
    return ("mysql", data.host, str(data.port), data.database, data.user)


def collation_of(connection: MySQLConnection) -> str:
    """Return the collation for new tables on this server."""
    with connect(connection) as session:
        version = str(session.scalar("SELECT VERSION()"))
    if "MariaDB" in version:
        return _MARIADB_COLLATION
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    return _MYSQL_COLLATION if numbers >= (8, 0, 17) else _OLD_MYSQL_COLLATION


def requires_tls(session: SqlSession) -> bool:
    """Return whether the server, or this login, refuses unencrypted connections."""
    if session.scalar("SELECT @@require_secure_transport"):
        return True
    with suppress(FlowError):  # not every server lets a login read its own definition
        rights = str(session.scalar("SHOW CREATE USER CURRENT_USER()"))
        return " REQUIRE " in rights and " REQUIRE NONE" not in rights
    return False
