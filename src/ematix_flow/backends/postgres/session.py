"""Sessions with PostgreSQL."""

from __future__ import annotations

from ematix_flow.backends.postgres.errors import translate
from ematix_flow.declare.connections import PostgresConnection
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.foundation.drivers import require_driver
from ematix_flow.foundation.errors import ConfigError

CONNECT_TIMEOUT_SECONDS = 10


def connect(connection: PostgresConnection) -> SqlSession:
    """Return an autocommit session in UTC."""
    psycopg = require_driver("psycopg", needed_by="PostgreSQL", package="psycopg", extra="postgres")
    try:
        raw = psycopg.connect(
            dsn(connection),
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
            application_name="ematix-flow",
            options="-c TimeZone=UTC",
        )
    except psycopg.Error as exc:
        raise translate(exc) from exc
    except UnicodeError as exc:  # raised by the resolver for a host such as "..."
        what = f"connection {connection.name!r} names a host that cannot be one"
        raise ConfigError(what, hint="correct its url: flow connections list", connection=connection.name) from exc
    return SqlSession(raw, translate=translate)


def dsn(connection: PostgresConnection) -> str:
    """Return the URL with all secrets resolved; pass it to drivers only."""
    url = connection.resolved().dsn
    for prefix in ("postgres://", "postgresql+psycopg://", "postgresql+psycopg2://"):
        if url.startswith(prefix):
            return "postgresql://" + url[len(prefix) :]
    return url


def identity(connection: PostgresConnection) -> tuple[str, ...]:
    """Return host, port, database and user: equal values mean the same database."""
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(dsn(connection))
    defaults = {"host": "localhost", "port": "5432", "user": "", "dbname": parts.get("user", "")}
    return ("postgres", *(str(parts.get(key) or defaults[key]) for key in ("host", "port", "dbname", "user")))
