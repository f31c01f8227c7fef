"""Merges the small files of a Delta table every few versions, within a byte budget that bounds the delay of a load."""

from __future__ import annotations

import logging
from typing import Any

from ematix_flow.backends.delta.delta_rs import open_table
from ematix_flow.foundation.redact import mask
from ematix_flow.storage.paths import LakePath

EVERY = 10  # versions between two checks: reading the log takes time as well
SMALL_BYTES = 16 * 1024 * 1024
MANY = 20  # small files from which compaction is worthwhile
BUDGET_BYTES = 256 * 1024 * 1024
_WANTED_BYTES = 128 * 1024 * 1024
_SWITCHES = ("delta.autoOptimize.autoCompact", "delta.autoOptimize")

_log = logging.getLogger(__name__)


def is_due(version: int) -> bool:
    """Return whether a table at this version is due for a check of its files."""
    return version > 0 and version % EVERY == 0


def compact(table: LakePath) -> int:
    """Rewrite the small files of a table when there are many and they fit the budget; return the number of files saved.

    The commit changes no data. A table with `delta.autoOptimize.autoCompact = false` is not compacted, nor is one with
    features that the library does not support.
    """
    try:
        delta_table = open_table(table)
        if not _is_worth_it(delta_table):
            return 0
        done = delta_table.optimize.compact(target_size=_WANTED_BYTES, max_concurrent_tasks=1)
    except ImportError:
        return 0
    except Exception as exc:  # the load is already committed: a failed compaction must not fail it
        _log.debug("%s is not compacted: %s", table, mask(str(exc)))
        return 0
    return int(done.get("numFilesRemoved", 0)) - int(done.get("numFilesAdded", 0))


def _is_worth_it(delta_table: Any) -> bool:
    configuration = delta_table.metadata().configuration
    if any(configuration.get(name, "").lower() == "false" for name in _SWITCHES):
        return False
    sizes = delta_table.get_add_actions(flatten=True).column("size_bytes").to_pylist()
    small = [size for size in sizes if size < SMALL_BYTES]
    return len(small) >= MANY and sum(small) <= BUDGET_BYTES
