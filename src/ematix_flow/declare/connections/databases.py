"""Databases: PostgreSQL and MySQL by URL or by host, SQLite and DuckDB by file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar
from urllib.parse import quote

from ematix_flow.declare.connections import urls
from ematix_flow.declare.connections.base import Connection, FieldRules
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.foundation.redact import MASK, redact
from ematix_flow.foundation.secrets import references_in


@dataclass(frozen=True)
class ServerAddress:
    """The address and login of a server as separate values, as drivers take them."""

    host: str
    port: int
    database: str
    user: str
    password: str = field(repr=False)
    params: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class ServerConnection(Connection):
    """A database server, given by a URL or by host, port, database, user and password."""

    url: str = ""
    host: str | None = None
    port: int | str | None = None
    database: str | None = None
    user: str | None = None
    password: str | None = None
    connect_timeout: int | str | None = None

    scheme: ClassVar[str] = ""
    default_port: ClassVar[int] = 0
    parameters: ClassVar[tuple[str, ...]] = ("connect_timeout",)
    """Fields that become parameters of the URL."""

    @property
    def dsn(self) -> str:
        """Return one URL for this server, percent-encoded, password included."""
        if self._hides_its_url():
            return self.url
        return urls.join(self._parts(), scheme=self.scheme, literal=self.is_resolved)

    @property
    def label(self) -> str:
        if self.url:
            return str(redact("url", self.url))
        return urls.join(self._parts(), password=MASK if self.password else "", literal=self.is_resolved)

    @property
    def address(self) -> ServerAddress:
        """Return the parts of a resolved connection; the first server if the URL lists several."""
        if self._hides_its_url():
            raise ConfigError(f"the address of {self.name!r} is known only after resolved()", where=self.declared_at)
        parts = self._parts()
        host, _, port = parts.host.split(",")[0].partition(":") if "," in parts.host else (parts.host, "", parts.port)
        return ServerAddress(
            host=host.strip("[]") or "localhost",
            port=int(port or self.default_port),
            database=parts.path,
            user=parts.user,
            password=parts.password,
            params=parts.params,
        )

    def _check(self) -> None:
        if not self.url and not self.host:
            self._wrong("url", "is required (or host, with database, user and password)")
        if not self.url:
            return
        for name in ("host", "port", "database"):
            if getattr(self, name) is not None:
                self._wrong(name, "is given twice: the url has it already", hint=f"keep either url or {name}")
        if self.password and not self._hides_its_url() and urls.split(self.url).password:
            self._wrong("password", "is given twice: the url has it already", hint="keep it in one of the two")

    def _hides_its_url(self) -> bool:
        return self.url.startswith("${")

    def _parts(self) -> urls.Url:
        extra = {name: str(value) for name in self.parameters if (value := getattr(self, name)) is not None}
        if self.url:
            parts = urls.split(self.url)
            return replace(
                parts,
                user=self.user or parts.user,
                password=self.password or parts.password,
                params={**parts.params, **extra},
            )
        return urls.Url(
            scheme=self.scheme,
            host=f"[{self.host}]" if ":" in (self.host or "") and not references_in(self.host) else self.host or "",
            port=str(self.port or ""),
            user=self.user or "",
            password=self.password or "",
            path=self.database or "",
            params=extra,
        )


@dataclass(frozen=True)
class PostgresConnection(ServerConnection):
    """A PostgreSQL server.

    >>> PostgresConnection("wh", host="db", database="shop", user="ana", password="p@ss/word").dsn
    'postgresql://ana:p%40ss%2Fword@db/shop'
    """

    sslmode: str | None = None
    sslrootcert: str | None = None
    application_name: str | None = None

    kind: ClassVar[str] = "postgres"
    dialect: ClassVar[str] = "postgres"
    default_schema: ClassVar[str] = "public"
    scheme: ClassVar[str] = "postgresql"
    default_port: ClassVar[int] = 5432
    parameters: ClassVar[tuple[str, ...]] = ("connect_timeout", "sslmode", "sslrootcert", "application_name")
    rules: ClassVar[FieldRules] = FieldRules(
        examples={"url": "postgres://user:${PGPASSWORD}@host:5432/database"},
        integers=("port", "connect_timeout"),
        paths=("sslrootcert",),
        urls={"url": ("postgres", "postgresql")},
        choices={"sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")},
    )


@dataclass(frozen=True)
class MySQLConnection(ServerConnection):
    """A MySQL 8 or MariaDB server.

    >>> MySQLConnection("shop", url="mysql+pymysql://ana:secret@db/shop").dsn
    'mysql://ana:secret@db/shop'
    """

    ssl_ca: str | None = None

    kind: ClassVar[str] = "mysql"
    dialect: ClassVar[str] = "mysql"
    scheme: ClassVar[str] = "mysql"
    default_port: ClassVar[int] = 3306
    parameters: ClassVar[tuple[str, ...]] = ("connect_timeout", "ssl_ca")
    rules: ClassVar[FieldRules] = FieldRules(
        examples={"url": "mysql://user:${MYSQL_PASSWORD}@host:3306/database"},
        integers=("port", "connect_timeout"),
        paths=("ssl_ca",),
        urls={"url": ("mysql", "mariadb")},
    )


@dataclass(frozen=True)
class FileDatabaseConnection(Connection):
    """A database in one file, or in memory."""

    path: str = ""

    rules: ClassVar[FieldRules] = FieldRules(required=("path",), examples={"path": "data/shop.db"}, paths=("path",))

    @property
    def dsn(self) -> str:
        """Return the URL: three slashes before a relative path, four before an absolute one."""
        path = self.path if references_in(self.path) else quote(self.path, safe="/:")
        return f"{self.kind}:///{path}"


@dataclass(frozen=True)
class SQLiteConnection(FileDatabaseConnection):
    """A SQLite database; `path=":memory:"` exists as long as the process."""

    kind: ClassVar[str] = "sqlite"
    dialect: ClassVar[str] = "sqlite"
    default_schema: ClassVar[str] = "main"


@dataclass(frozen=True)
class DuckDBConnection(FileDatabaseConnection):
    """A DuckDB database; `path=":memory:"` exists as long as the process."""

    kind: ClassVar[str] = "duckdb"
    dialect: ClassVar[str] = "duckdb"
    default_schema: ClassVar[str] = "main"
    rules: ClassVar[FieldRules] = FieldRules(required=("path",), examples={"path": "data/shop.duckdb"}, paths=("path",))
