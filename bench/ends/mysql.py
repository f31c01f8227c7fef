"""MySQL 8: one database to read from, another one, made anew for every run, to write to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from bench import data
from bench.ends import names
from bench.fingerprint import Fingerprint, query
from bench.model import Contestant
from bench.place import Place
from bench.tables import Table

_SOURCE = "bench_source"
_STATE = "ematix_flow"  # the product keeps its own tables in a database of this name
# The server is started for small tests: its default would read the source from disk again and again.
_SETTINGS = ("SET GLOBAL innodb_buffer_pool_size = 1073741824",)


class MysqlSource:
    """A table with its primary key."""

    def prepare(self, place: Place, table: Table) -> Mapping[str, str]:
        """Filled once per invocation."""
        mark = f"mysql {table.name}"
        if mark not in place.filled:
            _run(place, *_SETTINGS, f"CREATE DATABASE IF NOT EXISTS {_SOURCE} CHARACTER SET utf8mb4")
            _fill(place, table)
            place.filled.add(mark)
        url = _url(place, _SOURCE)
        return {names.SOURCE: url, names.SOURCE_JDBC: _jdbc(url), names.SOURCE_TABLE: table.name}


class MysqlTarget:
    """A new database."""

    def reset(self, place: Place, table: Table, contestant: Contestant) -> Mapping[str, str]:
        """Empty, and nothing of an earlier run beside it."""
        _run(
            place,
            *_SETTINGS,
            f"DROP DATABASE IF EXISTS {names.SCHEMA}",
            f"DROP DATABASE IF EXISTS {_STATE}",
            f"CREATE DATABASE {names.SCHEMA} CHARACTER SET utf8mb4",
        )
        url = _url(place, names.SCHEMA)
        return {names.TARGET: url, names.TARGET_JDBC: _jdbc(url)}

    def read(self, place: Place, table: Table, contestant: Contestant) -> Fingerprint:
        """Asked by pymysql, worked out in the server."""
        with _connect(place, names.SCHEMA) as client, client.cursor() as cursor:
            cursor.execute(query(table, "mysql", names.target_name(table)))
            return Fingerprint.of(cursor.fetchone())


def _fill(place: Place, table: Table) -> None:
    file = data.plain_csv(place, table)
    with _connect(place, _SOURCE) as client, client.cursor() as cursor:
        cursor.execute(table.ddl("mysql", table.name, keyed=True))
        cursor.execute(
            f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE {table.name} CHARACTER SET utf8mb4 "
            "FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"' ESCAPED BY '' LINES TERMINATED BY '\\n'"
        )
        client.commit()
        cursor.execute(f"ANALYZE TABLE {table.name}")
    file.unlink()


def _run(place: Place, *statements: str) -> None:
    with _connect(place, "flow") as client, client.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def _connect(place: Place, database: str) -> Any:
    import pymysql

    parts = urlsplit(place.mysql())
    return pymysql.connect(
        host=parts.hostname or "",
        port=parts.port or 3306,
        user=parts.username,
        password=parts.password or "",
        database=database,
        local_infile=True,
    )


def _url(place: Place, database: str) -> str:
    return urlsplit(place.mysql())._replace(path=f"/{database}").geturl()


def _jdbc(url: str) -> str:
    parts = urlsplit(url)
    return f"jdbc:mysql://{parts.hostname}:{parts.port}{parts.path}?user={parts.username}&password={parts.password}"
