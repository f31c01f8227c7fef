"""Spark settings of one run, derived from the size of its input instead of tuned by hand."""

from __future__ import annotations

import math

from ematix_flow.engine.profile import INITIAL_PARTITIONS, PARTITIONS_PER_CORE, Setting

ROWS_PER_PARTITION = 500_000
_MOST_PER_CORE = 100


def settings_for(rows: int | None, *, cores: int) -> list[Setting]:
    """Return the Spark settings for a run with this number of rows, None where it is unknown.

    >>> [item.value for item in settings_for(5_000_000, cores=2)]
    ['10', '10']
    >>> [item.value for item in settings_for(None, cores=2)]
    ['2', '16']
    """
    wanted = math.ceil((rows or 0) / ROWS_PER_PARTITION)
    count = max(cores, min(wanted, cores * _MOST_PER_CORE))
    reason = f"{cores} cores: more partitions would only wait"
    if count > cores:
        reason = f"~{rows:,} rows, {ROWS_PER_PARTITION:,} or so to sort at once"
    made = Setting("spark.sql.shuffle.partitions", str(count), reason)
    if rows is None:
        measured = f"rows unknown: cut finely, then joined to {cores} or to 64 MB each once their sizes are known"
        return [made, Setting(INITIAL_PARTITIONS, str(cores * PARTITIONS_PER_CORE), measured)]
    return [made, Setting(INITIAL_PARTITIONS, str(count), reason)]
