"""Settings of one run, from the size of its input: what a person would otherwise turn knobs for."""

from __future__ import annotations

import math

from ematix_flow.engine.profile import Setting

ROWS_PER_PARTITION = 500_000
_MOST_PER_CORE = 100


def settings_for(rows: int | None, *, cores: int) -> list[Setting]:
    """What Spark is told for a run of so many rows, as far as anybody knows.

    >>> [(item.name, item.value) for item in settings_for(5_000_000, cores=2)]
    [('spark.sql.shuffle.partitions', '10')]
    """
    wanted = math.ceil((rows or 0) / ROWS_PER_PARTITION)
    count = max(cores, min(wanted, cores * _MOST_PER_CORE))
    reason = f"{cores} cores: more partitions would only wait"
    if count > cores:
        reason = f"~{rows:,} rows, {ROWS_PER_PARTITION:,} or so to sort at once"
    return [Setting("spark.sql.shuffle.partitions", str(count), reason)]
