"""Requirements of a run's tasks on their machines, from the manifests of its backends."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ematix_flow.backends.catalog import backend_for
from ematix_flow.engine.executors import TaskNeeds
from ematix_flow.families import parquet_stage

_ALWAYS = ("pyarrow",)


def task_needs(read: Iterable[Any], written: Iterable[Any]) -> TaskNeeds:
    """Return the requirements for reading and writing these connections."""
    uses = [(backend_for(connection).tasks_reading, connection) for connection in read]
    uses += [(backend_for(connection).tasks_writing, connection) for connection in written]
    packages = {*_ALWAYS, *(name for use, _ in uses for name in use.packages)}
    folders: set[Path] = {folder for use, connection in uses for folder in use.folders(connection)}
    stage = parquet_stage.root()
    return TaskNeeds(frozenset(packages), frozenset(folders - {stage}), stage if stage in folders else None)
