"""The names that contestants find their data under."""

from __future__ import annotations

from pathlib import Path

from bench.model import Contestant
from bench.place import Place
from bench.tables import Table

SOURCE = "BENCH_SOURCE"  # a URL, a file or a folder
SOURCE_FILE = "BENCH_SOURCE_FILE"
SOURCE_JDBC = "BENCH_SOURCE_JDBC"
SOURCE_TABLE = "BENCH_SOURCE_TABLE"
SOURCE_TOPIC = "BENCH_SOURCE_TOPIC"
TARGET = "BENCH_TARGET"
TARGET_JDBC = "BENCH_TARGET_JDBC"
# The same by the names that the connections of ematix-flow have.
ORIGIN_DSN = "EMATIX_FLOW_DSN_ORIGIN"
GOAL_DSN = "EMATIX_FLOW_DSN_GOAL"
SCHEMA = "bench"


def target_name(table: Table) -> str:
    """The table in the target: changed orders go where orders are."""
    return table.origin or table.name


def folder_of(place: Place, contestant: Contestant) -> Path:
    """Where a contestant's target of files is."""
    return place.work / "target" / contestant.name
