"""The daemon process from which Spark's Python tasks on this machine are forked.

Spark puts a jar and two zips on the path of its Python processes and reads their tables of contents again before every
task, which takes longer than a small task; pyspark is installed here, so they are not needed. Modules that every task
imports are imported once, before the fork, and frozen, so that a task's garbage collection does not scan them.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys

MODULE = __name__
_NEEDED = ("pyarrow", "pyspark.sql.pandas.serializers", "ematix_flow.dataplane.task_errors")


def without_archives(path: list[str]) -> list[str]:
    """Return the path without jars and zips, unchanged if pyspark is not found without them."""
    before, plain = list(sys.path), [entry for entry in path if not entry.endswith((".jar", ".zip"))]
    sys.path[:] = plain
    try:
        return plain if importlib.util.find_spec("pyspark") and importlib.util.find_spec("py4j") else path
    finally:
        sys.path[:] = before


def main() -> None:
    """Serve the JVM in the same way as pyspark's own daemon."""
    sys.path[:] = without_archives(sys.path)
    for entry in set(sys.path_importer_cache) - set(sys.path):
        del sys.path_importer_cache[entry]
    daemon = importlib.import_module("pyspark.daemon")
    for module in _NEEDED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
