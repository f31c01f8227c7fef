"""Micro-batches that a target missed while others went on: stored on disk, and published to it in order later."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ematix_flow.dataplane.spark_session import active_session
from ematix_flow.foundation.errors import FlowError
from ematix_flow.foundation.redact import mask
from ematix_flow.storage.paths import LakePath, engine_uri, make_folder, remove, rename, safe_file_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ematix_flow.streaming.runtime.targets import TargetWriter

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Backlog:
    """The missed micro-batches below the stream's folder, in behind/<target>/<batch>."""

    root: LakePath
    _known: dict[str, list[int]] = field(default_factory=dict, init=False, compare=False)
    """A cache of the micro-batch numbers by target: no other process writes here, and a bucket is slow to list."""

    def _folder(self, target: TargetWriter) -> LakePath:
        return self.root / safe_file_name(target.name)

    def waiting(self, target: TargetWriter) -> list[int]:
        """Return the micro-batches that the target missed, the oldest first."""
        if target.name not in self._known:
            self._known[target.name] = _numbers(self._folder(target))
        return list(self._known[target.name])

    def read(self, target: TargetWriter, number: int) -> DataFrame:
        """Return the rows of a missed micro-batch."""
        return active_session().read.parquet(engine_uri(self._folder(target) / str(number)))

    def done(self, target: TargetWriter, number: int) -> None:
        """Delete a micro-batch that the target has now."""
        remove(self._folder(target) / str(number))
        self._known.pop(target.name, None)

    def add(self, target: TargetWriter, number: int, rows: DataFrame, error: FlowError) -> None:
        """Store a micro-batch for a target that failed; the stream goes on without it."""
        folder = self._folder(target)
        self._known.pop(target.name, None)
        make_folder(folder)
        kept, part = folder / str(number), folder / f".{number}"
        _log.warning("%s could not take batch %d, which is kept for later: %s", target.name, number, mask(error.what))
        if kept.exists():
            return
        remove(part)
        rows.write.mode("overwrite").parquet(engine_uri(part))
        rename(part, kept)

    def adopt(self, targets: Sequence[str]) -> None:
        """Rename folders that an earlier version named."""
        self._known.clear()
        for target, former in former_target_names(targets).items():
            folder = self.root / safe_file_name(target)
            for number in _numbers(self.root / former):
                make_folder(folder)
                rename(self.root / former / str(number), folder / str(number))
            if (self.root / former).is_dir():
                remove(self.root / former)

    def counted(self, targets: Sequence[str]) -> dict[str, int]:
        """Return how many micro-batches each target missed; a folder of no known target appears under its own name."""
        if not self.root.is_dir():
            return {}
        owners = {former: target for target, former in former_target_names(targets).items()}
        owners |= {safe_file_name(target): target for target in targets}
        counts = {item.name: len(_numbers(item)) for item in self.root.iterdir() if item.is_dir()}
        return {owners.get(name, name): count for name, count in sorted(counts.items()) if count}


def former_target_names(targets: Sequence[str]) -> Mapping[str, str]:
    """Return the earlier version's folder names by target, where they differ from today's and are unambiguous.

    >>> dict(former_target_names(["raw/orders", "main.orders"])), dict(former_target_names(["a/b", "a_b"]))
    ({'raw/orders': 'raw_orders'}, {})
    """
    plain = {
        name: "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name) for name in targets
    }
    taken = [*plain.values(), *(safe_file_name(name) for name in targets if safe_file_name(name) != plain[name])]
    return {
        name: plain[name] for name in targets if plain[name] != safe_file_name(name) and taken.count(plain[name]) == 1
    }


def _numbers(folder: LakePath) -> list[int]:
    return sorted(int(item.name) for item in folder.iterdir() if item.name.isdigit()) if folder.is_dir() else []
