"""The generator of the starter project's sample data: the same rows each time."""

from __future__ import annotations

import csv
import json
import random
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

CUSTOMERS = 500
ORDERS = 4_000
REVIEWS = 300
_BEGIN = datetime(2026, 1, 1)
_MINUTES = 31 * 24 * 60
_FIRST = ("Ana", "Ben", "Chloé", "Dinesh", "Elif", "Femi", "Grzegorz", "Hana", "Íñigo", "Jun", "Kai", "Løvise")
_LAST = ("Abe", "Berg", "Costa", "Demir", "Eze", "Fischer", "García", "Haddad", "Ivanova", "Jensen", "Kowalski")
_CITIES = ("Berlin", "Lagos", "Lima", "Osaka", "Porto", "Quito", "Warsaw", "Zürich", "")
_STATUSES = ("paid", "paid", "paid", "shipped", "shipped", "cancelled")
_WORDS = ("good", "quick", "too small", "as described", "late", "would buy again", "broken box", "perfect")


def make_shop(folder: Path) -> list[Path]:
    """Write a SQLite database of customers, orders as CSV and reviews as JSON lines; return their paths."""
    dice = random.Random(2026)  # noqa: S311  sample data, not security
    return [
        _customers(folder / "shop.db", dice),
        *_orders(folder / "raw" / "orders", dice),
        _reviews(folder / "raw" / "reviews" / "2026-01.jsonl", dice),
    ]


def _customers(path: Path, dice: random.Random) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    rows = []
    for number in range(1, CUSTOMERS + 1):
        first, last = dice.choice(_FIRST), dice.choice(_LAST)
        email = f"{first}.{last}{number}@example.com"
        messy = dice.choice((email.lower(), email.upper(), f"  {email} "))  # work for the normalizers
        changed = _BEGIN + timedelta(minutes=dice.randrange(_MINUTES))
        rows.append((number, messy, f"{first} {last} ", dice.choice(_CITIES), changed.isoformat(sep=" ")))
    with closing(sqlite3.connect(path)) as shop, shop:
        shop.execute(
            "CREATE TABLE customers (customer_id INTEGER PRIMARY KEY, email VARCHAR(256) NOT NULL, "
            "name VARCHAR(128) NOT NULL, city VARCHAR(64), updated_at TIMESTAMP NOT NULL)"
        )
        shop.executemany("INSERT INTO customers VALUES (?, ?, ?, ?, ?)", rows)
    return path


def _orders(folder: Path, dice: random.Random) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    minutes = sorted(dice.randrange(_MINUTES) for _ in range(ORDERS - 1))
    moments = [_BEGIN + timedelta(minutes=minute) for minute in [*minutes, _MINUTES - 1]]
    rows = [
        (
            number,
            dice.randint(1, CUSTOMERS),
            moment.isoformat(sep=" "),
            dice.choice(_STATUSES),
            f"{dice.randint(300, 40_000) / 100:.2f}",
        )
        for number, moment in enumerate(moments, start=1)
    ]
    halves = {"2026-01-a.csv": rows[: ORDERS // 2], "2026-01-b.csv": rows[ORDERS // 2 :]}
    for name, part in halves.items():
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("order_id", "customer_id", "ordered_at", "status", "amount"))
            writer.writerows(part)
    return [folder / name for name in halves]


def _reviews(path: Path, dice: random.Random) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        {
            "review_id": number,
            "order_id": dice.randint(1, ORDERS),
            "stars": dice.randint(1, 5),
            "text": dice.choice(_WORDS),
            "written_at": (_BEGIN + timedelta(minutes=dice.randrange(_MINUTES))).isoformat(sep=" "),
        }
        for number in range(1, REVIEWS + 1)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path
