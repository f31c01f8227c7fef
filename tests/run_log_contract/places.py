"""Where run logs are: one place a store, each fresh for a test, and the same for other processes."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pymysql
import pytest

from tests.services.object_stores import AZURE_ACCESS, AZURE_ACCOUNT, PLACE, S3_ACCESS

Ask = Callable[[str], str]

CLOCKS = ("postgres", "mysql8", "mariadb")
SHARED = ("sqlite", "duckdb", *CLOCKS, "s3", "azureblob", "gcs")
# By default these run the races and the versions only: they share their statements with PostgreSQL and SQLite.
TWINS = ("mysql8", "mariadb", "duckdb")
SHARED_STORES = tuple(pytest.param(name, marks=pytest.mark.full) if name in TWINS else name for name in SHARED)
STORES = ("memory", *SHARED_STORES)


@dataclass(frozen=True)
class Place:
    """An empty run log's address, and what a process needs beside it."""

    store: str
    url: str
    environment: Mapping[str, str] = field(default_factory=dict)


def fresh(store: str, *, folder: Path, ask: Ask) -> Place:
    """A place nobody has used; `ask` gives the value of a fixture by name."""
    name = f"t_{secrets.token_hex(5)}"
    if store == "sqlite":
        return Place(store, f"sqlite:///{folder}/run_log.db")
    if store == "memory":
        return Place(store, "memory://")
    if store == "duckdb":
        return Place(store, f"duckdb:///{folder}/run_log.duckdb")
    if store == "postgres":
        return Place(store, f"{ask('fresh_postgres')}?schema={name}")
    if store in ("mysql8", "mariadb"):
        url = ask(f"fresh_{store}")
        _empty(url)
        return Place(store, url)
    if store == "s3":
        return Place(store, f"s3://{PLACE}/{name}?endpoint={ask('s3_url')}&region=us-east-1", S3_ACCESS)
    if store == "azureblob":
        return Place(store, f"azureblob://{AZURE_ACCOUNT}/{PLACE}/{name}?endpoint={ask('azure_url')}", AZURE_ACCESS)
    return Place(store, f"gcs://{PLACE}/{name}?endpoint={ask('gcs_url')}")


def _empty(url: str) -> None:
    """Making the tables takes these servers longer than everything else in a test; emptying them does not."""
    parts = urlsplit(url)
    login = {"host": parts.hostname, "port": parts.port, "user": parts.username, "password": parts.password}
    with pymysql.connect(**login, database=parts.path[1:], autocommit=True) as raw, raw.cursor() as cursor:  # type: ignore[arg-type]
        cursor.execute("SHOW TABLES")
        for (table,) in cursor.fetchall():
            if table != "run_log_version":
                cursor.execute(f"DELETE FROM {table}")
