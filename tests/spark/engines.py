"""Every engine that runs rendered expressions, asked in the same way: a table of inputs, one query, values back."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, ClassVar, Protocol
from urllib.parse import urlsplit

from ematix_flow.sql.expressions import sqlite_functions

EPOCH = datetime(1970, 1, 1)
EPOCH_UTC = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Engine(Protocol):
    """A real system with a table `inputs(i, x)`."""

    dialect: str
    name: str

    def load(self, kind: str, values: Sequence[Any]) -> None:
        """Make the table `inputs` with these values of one kind."""

    def query(self, columns: Sequence[tuple[str, str | None]]) -> list[tuple[Any, ...]]:
        """The value of each (expression, kind of its result) for each input, in order."""

    def rows(self, select: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""


def micros(value: datetime) -> int:
    """An instant or a wall clock as one number."""
    start = EPOCH if value.tzinfo is None else EPOCH_UTC
    return (value - start) // timedelta(microseconds=1)


def canonical(value: Any, kind: str | None) -> Any:
    """What an engine returned, as a value that compares across engines."""
    if value is None:
        return None
    if kind == "boolean":
        return bool(value)
    if kind == "double":
        return f"{float(value) + 0.0:.15g}"
    if kind in ("numeric", "number"):
        return Decimal(repr(value) if isinstance(value, float) else str(value)) + 0
    return str(value) if kind in ("date", "text") else value


class PostgresEngine:
    """PostgreSQL in a session whose time zone is not UTC."""

    dialect = "postgres"
    name = "postgres"
    types: ClassVar[dict[str, str]] = {
        "text": "text",
        "double": "float8",
        "numeric": "numeric(38,6)",
        "big_int": "bigint",
        "timestamp_tz": "timestamptz",
    }

    def __init__(self, url: str) -> None:
        import psycopg

        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute("SET TIME ZONE 'America/New_York'")

    def load(self, kind: str, values: Sequence[Any]) -> None:
        self.connection.execute("DROP TABLE IF EXISTS inputs")
        self.connection.execute(f"CREATE TEMPORARY TABLE inputs (i int, x {self.types[kind]})")
        with self.connection.cursor().copy("COPY inputs FROM STDIN") as copy:
            for row in enumerate(values):
                copy.write_row(row)

    def query(self, columns: Sequence[tuple[str, str | None]]) -> list[tuple[Any, ...]]:
        wrapped = {
            "timestamp_tz": "CAST(EXTRACT(EPOCH FROM {}) * 1000000 AS bigint)",
            "timestamp": "CAST(EXTRACT(EPOCH FROM {}) * 1000000 AS bigint)",
            "date": "CAST({} AS text)",
        }
        shown = ", ".join(wrapped.get(kind or "", "{}").replace("{}", sql) for sql, kind in columns)
        return self.rows(f"SELECT {shown} FROM inputs ORDER BY i")

    def rows(self, select: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(select).fetchall()


class MySQLEngine:
    """MySQL or MariaDB; the result goes through a table, because only writing is strict."""

    dialect = "mysql"
    types: ClassVar[dict[str, str]] = {
        "text": "longtext character set utf8mb4",
        "double": "double",
        "numeric": "decimal(38,6)",
        "big_int": "bigint",
        "timestamp_tz": "datetime(6)",
    }

    def __init__(self, url: str, name: str) -> None:
        import pymysql

        parts = urlsplit(url)
        self.name = name
        self.connection = pymysql.connect(
            host=parts.hostname, port=parts.port, user=parts.username, password=parts.password or "",
            database=parts.path.strip("/") or None, charset="utf8mb4", autocommit=True,
        )  # fmt: skip
        self.cursor = self.connection.cursor()

    def load(self, kind: str, values: Sequence[Any]) -> None:
        self.cursor.execute("DROP TEMPORARY TABLE IF EXISTS inputs")
        self.cursor.execute(f"CREATE TEMPORARY TABLE inputs (i int, x {self.types[kind]})")
        naive = [_utc_naive(value) for value in values]
        self.cursor.executemany("INSERT INTO inputs VALUES (%s, %s)", list(enumerate(naive)))

    def query(self, columns: Sequence[tuple[str, str | None]]) -> list[tuple[Any, ...]]:
        epoch = "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP '1970-01-01 00:00:00', {})"
        wrapped = {"timestamp_tz": epoch, "timestamp": epoch, "date": "CAST({} AS char)"}
        shown = ", ".join(
            f"{wrapped.get(kind or '', '{}').replace('{}', sql)} AS c{index}"
            for index, (sql, kind) in enumerate(columns)
        )
        self.cursor.execute("DROP TEMPORARY TABLE IF EXISTS results")
        self.cursor.execute(f"CREATE TEMPORARY TABLE results AS SELECT i, {shown} FROM inputs")
        return [row[1:] for row in self.rows("SELECT * FROM results ORDER BY i")]

    def rows(self, select: str) -> list[tuple[Any, ...]]:
        self.cursor.execute(select)
        return list(self.cursor.fetchall())


class SQLiteEngine:
    """SQLite with the registered functions."""

    dialect = "sqlite"
    name = "sqlite"
    types: ClassVar[dict[str, str]] = {
        "text": "text",
        "double": "real",
        "numeric": "text",
        "big_int": "integer",
        "timestamp_tz": "text",
    }

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:")
        sqlite_functions.register(self.connection)

    def load(self, kind: str, values: Sequence[Any]) -> None:
        self.connection.execute("DROP TABLE IF EXISTS inputs")
        self.connection.execute(f"CREATE TABLE inputs (i integer, x {self.types[kind]} COLLATE NOCASE)")
        stored = [_sqlite_stored(value) for value in values]
        self.connection.executemany("INSERT INTO inputs VALUES (?, ?)", enumerate(stored))

    def query(self, columns: Sequence[tuple[str, str | None]]) -> list[tuple[Any, ...]]:
        found = self.rows(f"SELECT {', '.join(sql for sql, _ in columns)} FROM inputs ORDER BY i")
        kinds = [kind for _, kind in columns]
        return [tuple(_sqlite_value(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in found]

    def rows(self, select: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(select).fetchall()


class DuckDBEngine:
    """DuckDB in a session whose time zone is not UTC."""

    dialect = "duckdb"
    name = "duckdb"
    types: ClassVar[dict[str, str]] = {
        "text": "varchar",
        "double": "double",
        "numeric": "decimal(38,6)",
        "big_int": "bigint",
        "timestamp_tz": "timestamptz",
    }

    def __init__(self) -> None:
        import duckdb

        self.connection = duckdb.connect()
        self.connection.execute("SET TimeZone = 'America/New_York'")

    def load(self, kind: str, values: Sequence[Any]) -> None:
        self.connection.execute(f"CREATE OR REPLACE TABLE inputs (i integer, x {self.types[kind]})")
        stored = [str(value) if isinstance(value, datetime) else value for value in values]
        self.connection.executemany("INSERT INTO inputs VALUES (?, ?)", list(enumerate(stored)))

    def query(self, columns: Sequence[tuple[str, str | None]]) -> list[tuple[Any, ...]]:
        wrapped = {"timestamp_tz": "EPOCH_US({})", "timestamp": "EPOCH_US({})", "date": "CAST({} AS varchar)"}
        shown = ", ".join(wrapped.get(kind or "", "{}").replace("{}", sql) for sql, kind in columns)
        return self.rows(f"SELECT {shown} FROM inputs ORDER BY i")

    def rows(self, select: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(select).fetchall()


class SparkEngine:
    """Spark; the inputs are shuffled once so that generated code runs and not the planner's own evaluation."""

    dialect = "spark"
    name = "spark"
    types: ClassVar[dict[str, str]] = {
        "text": "string",
        "double": "double",
        "numeric": "decimal(38,6)",
        "big_int": "bigint",
        "timestamp_tz": "timestamp",
    }

    def __init__(self, spark: Any) -> None:
        self.spark = spark

    def load(self, kind: str, values: Sequence[Any]) -> None:
        frame = self.spark.createDataFrame(list(enumerate(values)), f"i int, x {self.types[kind]}")
        frame.repartition(1).createOrReplaceTempView("inputs")

    def query(self, columns: Sequence[tuple[str, str | None]]) -> list[tuple[Any, ...]]:
        epoch = "UNIX_MICROS(CAST({} AS TIMESTAMP_LTZ))"
        wrapped = {"timestamp_tz": epoch, "timestamp": epoch, "date": "CAST({} AS string)"}
        shown = ", ".join(
            f"{wrapped.get(kind or '', '{}').replace('{}', sql)} AS c{index}"
            for index, (sql, kind) in enumerate(columns)
        )
        return [row[1:] for row in sorted(self.rows(f"SELECT i, {shown} FROM inputs"))]

    def rows(self, select: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.spark.sql(select).collect()]


def _utc_naive(value: Any) -> Any:
    return value.astimezone(timezone.utc).replace(tzinfo=None) if isinstance(value, datetime) else value


def _sqlite_stored(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat(sep=" ", timespec="microseconds")
    return str(value) if isinstance(value, Decimal) else value


def _sqlite_value(value: Any, kind: str | None) -> Any:
    if value is None or kind not in ("timestamp_tz", "timestamp"):
        return value
    assert ("+00:00" in value) == (kind == "timestamp_tz"), value
    assert len(value.removesuffix("+00:00")) == len("2024-01-01 00:00:00.000000"), value
    return micros(datetime.fromisoformat(value))
