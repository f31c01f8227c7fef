"""DuckDB and SQLite: databases that are one file."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from bench import data
from bench.ends import names
from bench.ends.folders import ParquetTarget
from bench.fingerprint import Fingerprint, query, sqlite_hash
from bench.model import Contestant
from bench.place import Place
from bench.tables import BIG, DAY, INT, MOMENT, MONEY, Table


class DuckdbSource:
    """A DuckDB file with one table."""

    def prepare(self, place: Place, table: Table) -> Mapping[str, str]:
        """Made once per scale."""
        import duckdb

        file = data.lake(place) / f"{table.name}.duckdb"
        rows = data.parquet(place, table)
        if not file.exists():
            draft = place.work / file.name
            with duckdb.connect(str(draft)) as client:
                client.execute(table.ddl("duckdb", table.name, keyed=False))
                client.execute(f"INSERT INTO {table.name} SELECT * FROM read_parquet('{rows}')")
            draft.replace(file)
        return {names.SOURCE: str(file), names.SOURCE_JDBC: f"jdbc:duckdb:{file}", names.SOURCE_TABLE: table.name}


class DuckdbTarget(ParquetTarget):
    """A new DuckDB file; who cannot create tables finds one in it."""

    def reset(self, place: Place, table: Table, contestant: Contestant) -> Mapping[str, str]:
        """No file, or a file with an empty table."""
        import duckdb

        super().reset(place, table, contestant)
        file = _file(place, contestant, "target.duckdb")
        if not contestant.is_product:
            with duckdb.connect(str(file)) as client:
                client.execute(f"CREATE SCHEMA {names.SCHEMA}")
                client.execute(table.ddl("duckdb", f"{names.SCHEMA}.{names.target_name(table)}", keyed=False))
        return {names.TARGET: str(file), names.TARGET_JDBC: f"jdbc:duckdb:{file}"}

    def read(self, place: Place, table: Table, contestant: Contestant) -> Fingerprint:
        """Asked by DuckDB."""
        import duckdb

        with duckdb.connect(str(_file(place, contestant, "target.duckdb")), read_only=True) as client:
            asked = query(table, "duckdb", f"{names.SCHEMA}.{names.target_name(table)}")
            return Fingerprint.of(client.execute(asked).fetchone())


class SqliteSource:
    """A SQLite file with one table: days are ISO text, money is a number."""

    def prepare(self, place: Place, table: Table) -> Mapping[str, str]:
        """Made once per scale."""
        file = data.lake(place) / f"{table.name}.sqlite"
        rows = data.parquet(place, table)
        if not file.exists():
            draft = place.work / file.name
            _fill_sqlite(draft, table, rows)
            draft.replace(file)
        return {names.SOURCE: str(file), names.SOURCE_JDBC: f"jdbc:sqlite:{file}", names.SOURCE_TABLE: table.name}


class SqliteTarget(ParquetTarget):
    """A new SQLite file; who cannot create tables finds one in it."""

    def reset(self, place: Place, table: Table, contestant: Contestant) -> Mapping[str, str]:
        """No file, or a file with an empty table."""
        super().reset(place, table, contestant)
        file = _file(place, contestant, "target.sqlite")
        if not contestant.is_product:
            with closing(sqlite3.connect(file)) as client:
                client.execute(table.ddl("sqlite", f"{names.SCHEMA}_{names.target_name(table)}", keyed=False))
        return {names.TARGET: str(file), names.TARGET_JDBC: f"jdbc:sqlite:{file}"}

    def read(self, place: Place, table: Table, contestant: Contestant) -> Fingerprint:
        """Asked by Python's own sqlite3."""
        with closing(sqlite3.connect(_file(place, contestant, "target.sqlite"))) as client:
            client.create_function("bench_hash", 1, sqlite_hash, deterministic=True)
            asked = query(table, "sqlite", f"{names.SCHEMA}_{names.target_name(table)}")
            return Fingerprint.of(client.execute(asked).fetchone())


def _fill_sqlite(file: Path, table: Table, rows: Path) -> None:
    import duckdb

    casts = {BIG: "{0}", INT: "{0}", MONEY: "{0}::DOUBLE", DAY: "{0}::VARCHAR", MOMENT: "{0}::VARCHAR"}
    columns = ", ".join(casts.get(kind, "{0}").format(name) for name, kind in table.columns)
    places = ", ".join("?" for _ in table.columns)
    with closing(sqlite3.connect(file)) as client, duckdb.connect() as reader:
        client.execute(table.ddl("sqlite", table.name, keyed=True))
        answer = reader.execute(f"SELECT {columns} FROM read_parquet('{rows}')")
        while chunk := answer.fetchmany(50_000):
            client.executemany(f"INSERT INTO {table.name} VALUES ({places})", chunk)
        client.commit()


def _file(place: Place, contestant: Contestant, name: str) -> Path:
    return names.folder_of(place, contestant) / name
