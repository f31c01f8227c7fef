"""The module that the crash tests of backfills run in processes of their own; the environment says which target."""

from __future__ import annotations

import os
import time
from datetime import datetime

from ematix_flow import (
    BigInt,
    DeltaLocalConnection,
    DuckDBConnection,
    MySQLConnection,
    ObjectStoreLocalConnection,
    PostgresConnection,
    SQLiteConnection,
    TimestampTZ,
    ematix,
)

_KIND, _PLACE = os.environ["CRASH_TARGET"].split("|")
_MAKE = {
    "postgres": lambda: PostgresConnection(name="crash", url=_PLACE),
    "mysql": lambda: MySQLConnection(name="crash", url=_PLACE),
    "sqlite": lambda: SQLiteConnection(name="crash", path=_PLACE),
    "duckdb": lambda: DuckDBConnection(name="crash", path=_PLACE),
    "delta": lambda: DeltaLocalConnection(name="crash", path=_PLACE),
    "parquet": lambda: ObjectStoreLocalConnection(name="crash", path=_PLACE, format="parquet"),
}
CONNECTION = _MAKE[_KIND]()
SOURCE = SQLiteConnection(name="readings", path=os.environ["CRASH_SOURCE"])


@ematix.table(schema=os.environ["CRASH_SCHEMA"])
class Readings:
    """Rows without a key: a doubled row would show."""

    n: BigInt
    at: TimestampTZ


@ematix.pipeline(
    target=Readings, source_connection=SOURCE, target_connection=CONNECTION, mode="append", window_start="2026-01-01"
)
def readings(start: datetime, end: datetime) -> str:
    """A window of readings, at a pace that leaves time to be killed."""
    time.sleep(float(os.environ.get("CRASH_PACE", "0")))
    return "SELECT n, at FROM readings WHERE at >= {start} AND at < {end}"
