"""The rows that arrive in the sources of the artefact project, round by round."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

OLD_ENOUGH = 60
"""Seconds since a file's last change, after which a stream takes it as complete."""


def new_orders(folder: Path, numbers: Iterable[int]) -> None:
    """Insert orders with these ids, each with ten times its id as amount."""
    with closing(sqlite3.connect(folder / "shop.db")) as shop, shop:
        shop.execute("CREATE TABLE IF NOT EXISTS raw_orders (id BIGINT, customer BIGINT, amount BIGINT)")
        shop.executemany(
            "INSERT INTO raw_orders VALUES (?, ?, ?)", [(number, number % 3, number * 10) for number in numbers]
        )


def customers_in(folder: Path, cities: Mapping[int, str], day: int) -> None:
    """Insert or move these customers, on a day of January 2026."""
    with closing(sqlite3.connect(folder / "shop.db")) as shop, shop:
        shop.execute(
            "CREATE TABLE IF NOT EXISTS raw_customers (id BIGINT PRIMARY KEY, city TEXT, updated_at TIMESTAMP)"
        )
        shop.executemany(
            "INSERT OR REPLACE INTO raw_customers VALUES (?, ?, ?)",
            [(customer, city, f"2026-01-{day:02} 08:00:00") for customer, city in cities.items()],
        )


def new_file(folder: Path, stream: str, name: str, rows: Iterable[Mapping[str, Any]], *broken: str) -> None:
    """Write a file of JSON lines into the folder that a stream reads; `broken` lines follow as they are."""
    lines = [*(json.dumps(row) for row in rows), *broken]
    path = folder / "incoming" / stream / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    written = time.time() - OLD_ENOUGH
    os.utime(path, (written, written))


def readings(*times_and_values: tuple[str, int]) -> list[dict[str, Any]]:
    """Return readings of one sensor: minute and second past ten o'clock, and the value."""
    return [{"sensor": "s1", "at": f"2026-01-01T10:{at}Z", "value": value} for at, value in times_and_values]
