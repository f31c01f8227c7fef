"""PostgreSQL: one database to read from, another one, made anew for every run, to write to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from bench import data
from bench.ends import names
from bench.fingerprint import Fingerprint, query
from bench.model import Contestant
from bench.place import Place
from bench.tables import Table

_SOURCE, _TARGET = "bench_source", "bench_target"
_ADDED = "_loaded_at timestamptz NOT NULL, _batch_id uuid NOT NULL"
# Durability is off in this server; without this a big load would also wait for checkpoints, some loads and not others.
_SETTINGS = ("ALTER SYSTEM SET max_wal_size = '4GB'", "SELECT pg_reload_conf()")


class PostgresSource:
    """A table with its primary key."""

    def prepare(self, place: Place, table: Table) -> Mapping[str, str]:
        """Filled once per invocation."""
        _create_database(place, _SOURCE, only_if_missing=True)
        url = _url(place, _SOURCE)
        mark = f"postgres {table.name}"
        if mark not in place.filled:
            _fill(place, url, table, name=table.name, marked=False)
            place.filled.add(mark)
        return {names.SOURCE: url, names.ORIGIN_DSN: url, names.SOURCE_JDBC: _jdbc(url), names.SOURCE_TABLE: table.name}


@dataclass(frozen=True)
class PostgresTarget:
    """A new database; `base` is the table that already lies in it, with the primary key, before a run."""

    base: Table | None = None

    def reset(self, place: Place, table: Table, contestant: Contestant) -> Mapping[str, str]:
        """Another database: a copy of the prepared one, or an empty one."""
        template = self._template(place, contestant)
        _create_database(place, _TARGET, template=template)
        url = _url(place, _TARGET)
        if not template:
            _run(url, f"CREATE SCHEMA {names.SCHEMA}")
        _run(url, "CHECKPOINT")
        return {names.TARGET: url, names.GOAL_DSN: url, names.TARGET_JDBC: _jdbc(url)}

    def read(self, place: Place, table: Table, contestant: Contestant) -> Fingerprint:
        """Asked by psycopg, worked out in the server."""
        import psycopg

        with psycopg.connect(_url(place, _TARGET)) as client:
            asked = query(table, "postgres", f"{names.SCHEMA}.{names.target_name(table)}")
            return Fingerprint.of(client.execute(asked.encode()).fetchone())

    def _template(self, place: Place, contestant: Contestant) -> str:
        if self.base is None:
            return ""
        name = f"bench_base_{self.base.name}" + ("_marked" if contestant.marks_rows else "")
        if name not in place.filled:
            _create_database(place, name)
            _run(_url(place, name), f"CREATE SCHEMA {names.SCHEMA}")
            table = f"{names.SCHEMA}.{names.target_name(self.base)}"
            _fill(place, _url(place, name), self.base, name=table, marked=contestant.marks_rows)
            place.filled.add(name)
        return name


def watched_database(place: Place) -> Mapping[str, str]:
    """An empty database that a stream writes to while it is watched."""
    _create_database(place, _TARGET)
    url = _url(place, _TARGET)
    return {names.TARGET: url, names.TARGET_JDBC: _jdbc(url)}


def _fill(place: Place, url: str, table: Table, *, name: str, marked: bool) -> None:
    import psycopg

    file = data.plain_csv(place, table)
    with psycopg.connect(url) as client, file.open("rb") as rows:
        client.execute(table.ddl("postgres", name, keyed=True, added=_ADDED if marked else "").encode())
        if marked:
            client.execute(
                f"ALTER TABLE {name} ALTER _loaded_at SET DEFAULT now(), ALTER _batch_id SET DEFAULT gen_random_uuid()".encode()
            )
        with client.cursor().copy(f"COPY {name} ({', '.join(table.names)}) FROM STDIN (FORMAT csv)".encode()) as copy:
            while chunk := rows.read(1 << 20):
                copy.write(chunk)
        if marked:
            client.execute(f"ALTER TABLE {name} ALTER _loaded_at DROP DEFAULT, ALTER _batch_id DROP DEFAULT".encode())
    file.unlink()
    _run(url, f"VACUUM (FREEZE, ANALYZE) {name}")


def _create_database(place: Place, name: str, *, template: str = "", only_if_missing: bool = False) -> None:
    url = place.postgres()
    if "postgres settings" not in place.filled:
        _run(url, *_SETTINGS)
        place.filled.add("postgres settings")
    if only_if_missing and name in place.filled:
        return
    _run(url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    _run(url, f"CREATE DATABASE {name}" + (f" TEMPLATE {template}" if template else ""))
    place.filled.add(name) if only_if_missing else None


def _run(url: str, *statements: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as client:
        for statement in statements:
            client.execute(statement.encode())


def _url(place: Place, database: str) -> str:
    return urlsplit(place.postgres())._replace(path=f"/{database}").geturl()


def _jdbc(url: str) -> str:
    parts = urlsplit(url)
    return (
        f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}?user={parts.username}&password={parts.password}"
    )
