"""Micro-batches that a target could not take while others went on: kept on disk, and given to it in order later."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.families.lake.place import LakePath, make_folder, remove, rename, uri
from ematix_flow.families.lake.session import active
from ematix_flow.foundation.errors import FlowError
from ematix_flow.foundation.redact import mask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ematix_flow.engine.streams.targets import TargetWriter

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Backlog:
    """Below the stream's folder: behind/<target>/<batch>."""

    root: LakePath

    def _folder(self, target: TargetWriter) -> LakePath:
        return self.root / "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in target.name)

    def waiting(self, target: TargetWriter) -> list[int]:
        """The micro-batches that the target missed, the oldest first."""
        folder = self._folder(target)
        return sorted(int(item.name) for item in folder.iterdir() if item.name.isdigit()) if folder.exists() else []

    def read(self, target: TargetWriter, number: int) -> DataFrame:
        """The rows of a micro-batch that was missed."""
        return active().read.parquet(uri(self._folder(target) / str(number)))

    def done(self, target: TargetWriter, number: int) -> None:
        """The target has it now."""
        remove(self._folder(target) / str(number))

    def add(self, target: TargetWriter, number: int, rows: DataFrame, error: FlowError) -> None:
        """Keep a micro-batch for a target that failed; the stream goes on without it."""
        folder = self._folder(target)
        make_folder(folder)
        kept, part = folder / str(number), folder / f".{number}"
        _log.warning("%s could not take batch %d, which is kept for later: %s", target.name, number, mask(error.what))
        if kept.exists():
            return
        remove(part)
        rows.write.mode("overwrite").parquet(uri(part))
        rename(part, kept)
