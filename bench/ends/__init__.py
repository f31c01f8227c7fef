"""Where rows come from and where they go: folders, servers and database files."""

from __future__ import annotations

from bench.ends.embedded import DuckdbSource, DuckdbTarget, SqliteSource, SqliteTarget
from bench.ends.folders import CsvSource, DeltaTarget, HistoryTarget, ParquetSource, ParquetTarget
from bench.ends.kafka import KafkaSource
from bench.ends.mysql import MysqlSource, MysqlTarget
from bench.ends.postgres import PostgresSource, PostgresTarget

__all__ = [
    "CsvSource",
    "DeltaTarget",
    "DuckdbSource",
    "DuckdbTarget",
    "HistoryTarget",
    "KafkaSource",
    "MysqlSource",
    "MysqlTarget",
    "ParquetSource",
    "ParquetTarget",
    "PostgresSource",
    "PostgresTarget",
    "SqliteSource",
    "SqliteTarget",
]
