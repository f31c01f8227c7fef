"""Whether two tables hold the same rows: how many, and a sum over their hashes that does not depend on the order."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import md5

from bench.tables import BIG, DAY, INT, MOMENT, MONEY, TEXT, Table

# Every system writes a value in the same words: money in cents, days as ISO text. What a value means is compared,
# not how a contestant chose to store it.
_AS_TEXT: dict[str, dict[str, str]] = {
    "postgres": {
        BIG: "{0}::bigint::text",
        INT: "{0}::bigint::text",
        MONEY: "round({0} * 100)::bigint::text",
        DAY: "{0}::date::text",
        TEXT: "{0}",
    },
    "mysql": {
        BIG: "CAST({0} AS SIGNED)",
        INT: "CAST({0} AS SIGNED)",
        MONEY: "CAST(ROUND({0} * 100) AS SIGNED)",
        DAY: "DATE_FORMAT({0}, '%Y-%m-%d')",
        TEXT: "{0}",
    },
    "duckdb": {
        BIG: "CAST({0} AS BIGINT)::VARCHAR",
        INT: "CAST({0} AS BIGINT)::VARCHAR",
        MONEY: "CAST(round({0} * 100) AS BIGINT)::VARCHAR",
        DAY: "CAST({0} AS DATE)::VARCHAR",
        MOMENT: "strftime(CAST({0} AS TIMESTAMP), '%Y-%m-%d %H:%M:%S')",
        TEXT: "{0}",
    },
    "sqlite": {
        BIG: "CAST({0} AS INTEGER)",
        INT: "CAST({0} AS INTEGER)",
        MONEY: "CAST(round({0} * 100) AS INTEGER)",
        # Spark's JDBC writer stores milliseconds since 1970 here.
        DAY: "CASE typeof({0}) WHEN 'integer' THEN date({0} / 1000, 'unixepoch') ELSE substr({0}, 1, 10) END",
        TEXT: "{0}",
    },
}
_SUM_OF = {
    "postgres": "sum(('x' || substr(md5({0}), 1, 8))::bit(32)::bigint)",
    "mysql": "SUM(CAST(CONV(SUBSTR(MD5({0}), 1, 8), 16, 10) AS UNSIGNED))",
    "duckdb": "sum(CAST('0x' || substr(md5({0}), 1, 8) AS BIGINT))",
    "sqlite": "sum(bench_hash({0}))",
}


@dataclass(frozen=True)
class Fingerprint:
    """The number of rows and the sum over their hashes."""

    rows: int
    checksum: int

    @classmethod
    def of(cls, row: tuple[object, ...] | None) -> Fingerprint:
        """From the answer to `query`."""
        rows, checksum = row or (0, 0)
        return cls(int(str(rows)), int(str(checksum or 0)))


def query(table: Table, dialect: str, source: str) -> str:
    """The SELECT that gives a table's fingerprint in one system's words."""
    parts = [_AS_TEXT[dialect][kind].format(name) for name, kind in table.columns]
    text = " || '|' || ".join(parts) if dialect == "sqlite" else f"concat_ws('|', {', '.join(parts)})"
    return f"SELECT count(*), {_SUM_OF[dialect].format(text)} FROM {source}"


def sqlite_hash(text: str | None) -> int:
    """What SQLite lacks; register it as `bench_hash`."""
    return int(md5((text or "").encode()).hexdigest()[:8], 16)


def of_parquet(table: Table, files: str) -> Fingerprint:
    """The fingerprint of Parquet files, read by DuckDB."""
    return of_duckdb(table, f"read_parquet('{files}', hive_partitioning = false, union_by_name = true)")


def of_duckdb(table: Table, source: str, *, register: dict[str, object] | None = None) -> Fingerprint:
    """The fingerprint of whatever DuckDB can read in memory."""
    import duckdb

    with duckdb.connect() as client:
        for name, found in (register or {}).items():
            client.register(name, found)
        return Fingerprint.of(client.execute(query(table, "duckdb", source)).fetchone())
