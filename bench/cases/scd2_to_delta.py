"""Every version of 500 customers, SQLite → Delta Lake: into an empty folder, and when some of them have changed."""

from __future__ import annotations

from bench.contestants import cold_and_warm, stock
from bench.ends import HistoryTarget, SqliteSource
from bench.model import WARM, Case, Goal
from bench.tables import CUSTOMERS, MOVED, MOVED_CUSTOMERS, Table


def _case(name: str, title: str, table: Table, *, before: Table | None, closed: int, note: str) -> Case:
    return Case(
        name=name,
        title=title,
        table=table,
        source=SqliteSource(),
        target=HistoryTarget(closed=closed),
        before=before,
        contestants=(*cold_and_warm("scd2_to_delta", warmups=5), stock("scd2_to_delta", "delta", "sqlite")),
        goals=(Goal(at_least=2), Goal(at_most_seconds=2.5, who=WARM)),
        note=note,
    )


CASES = (
    _case(
        "scd2_first",
        "scd2 into Delta, 500 rows, first load",
        CUSTOMERS,
        before=None,
        closed=0,
        note="Stock PySpark writes a new Delta table with the columns of a version.",
    ),
    _case(
        "scd2_changes",
        "scd2 into Delta, 500 rows, 13 changed",
        MOVED_CUSTOMERS,
        before=CUSTOMERS,
        closed=MOVED,
        note="Every contestant has loaded 500 customers before; 12 have moved since, 1 is new. Stock PySpark is one MERGE.",
    ),
)
