"""Rows H1 to H3 of the comparison with the original (docs/differences.md): loads that were refused or lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tests.unit.cli.conftest import Flow

VERSIONS = """

from ematix_flow import TimestampTZ


@ematix.table(schema="main")
class Versions:
    id: Annotated[BigInt, pk()]
    name: Text


@ematix.pipeline(target=Versions, target_connection="shop", mode="scd2", event_timestamp_column="changed_at")
def versions(conn):
    return "SELECT id, name, changed_at FROM events"
"""


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as base, base:
        return base.execute(query).fetchall()


def events(path: Path, *given: tuple[int, str, str]) -> None:
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("CREATE TABLE IF NOT EXISTS events (id INTEGER, name TEXT, changed_at TIMESTAMP)")
        base.execute("DELETE FROM events")
        base.executemany("INSERT INTO events VALUES (?, ?, ?)", given)


def test_an_event_time_that_only_the_source_has_becomes_valid_from(
    flow: Flow, shop: Path, declare: Callable[[str], None]
) -> None:
    """gaps H1"""
    declare(VERSIONS)
    base = shop / "shop.db"
    events(base, (1, "Ada", "2024-01-01 00:00:00"), (1, "Ada L.", "2024-02-01 00:00:00"))
    assert flow("run", "versions").code == 0
    events(base, (1, "Augusta", "2024-01-15 00:00:00"))  # a late one, between the two
    assert flow("run", "versions").code == 0

    found = rows(base, "SELECT name, substr(valid_from, 1, 10), substr(valid_to, 1, 10) FROM versions ORDER BY 2")
    assert found == [
        ("Ada", "2024-01-01", "2024-01-15"),
        ("Augusta", "2024-01-15", "2024-02-01"),
        ("Ada L.", "2024-02-01", None),
    ]
    assert "changed_at" not in [name for _, name, *_ in rows(base, "PRAGMA table_info(versions)")]


def test_a_fan_out_loads_its_other_targets_when_one_lacks_a_column(
    flow: Flow, shop: Path, declare: Callable[[str], None]
) -> None:
    """gaps H2, and the row on a fan-out inside one database: no engine is started for it."""
    declare("""

@ematix.table(schema="main")
class Richer:
    id: Annotated[BigInt, pk()]
    name: Text
    city: Text


def fanned(continues):
    @ematix.pipeline(
        targets=[ematix.target(People, mode="merge"), ematix.target(Richer, mode="merge"), ematix.target(Names, mode="append")],
        target_connection="shop", continue_on_failure=continues, name="fan" if continues else "strict",
    )
    def fan(conn):
        return "SELECT id, name FROM raw_people"

fanned(True)
fanned(False)
""")
    done = flow("run", "fan", "--json")
    assert done.code == 8
    assert [
        row for (row,) in rows(shop / "shop.db", "SELECT count(*) FROM people UNION ALL SELECT count(*) FROM names")
    ] == [200, 200]
    history = rows(
        shop / "shop.db", "SELECT target_table, status, path FROM ematix_flow_run_history ORDER BY target_table"
    )
    assert history == [
        ("names", "success", "same_db"),
        ("people", "success", "same_db"),
        ("richer", "failed", "cross_db"),
    ]
    assert "session" not in done.out or '"session": null' in done.out
    assert flow("run", "strict").code == 3


def test_two_pipelines_of_one_name_in_one_file_are_an_error_that_names_both_places(
    flow: Flow, shop: Path, declare: Callable[[str], None]
) -> None:
    """gaps H3"""
    declare("""

@ematix.pipeline(target=Names, target_connection="shop", mode="append")
def people(conn):
    return "SELECT id, name FROM raw_people"
""")
    first = next(number for number, line in enumerate(text_of(shop), 1) if line.startswith("@ematix.pipeline"))
    second = len(text_of(shop)) - 2
    done = flow("list")
    assert done.code == 3
    assert f"pipelines.py:{first}" in done.err
    assert f"pipelines.py:{second}" in done.err


def text_of(shop: Path) -> list[str]:
    return (shop / "pipelines.py").read_text().splitlines()
