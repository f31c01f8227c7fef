"""The idle trigger: a file beside the checkpoint is one more source, and starts a micro-batch while others are silent.

Spark begins a micro-batch only when a source has data. The content of the file does not matter: the clock decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.engine.streams.stateful.fold import Fold
from ematix_flow.engine.streams.stateful.keeper import Kept
from ematix_flow.engine.streams.stateful.watermark import Times, wakes_at
from ematix_flow.families.lake.place import LakePath, make_folder, uri, write_atomically
from ematix_flow.foundation.clock import now

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER = "ticks"
_SCHEMA = "_flow_tick BIGINT"
_NOBODYS = "_ticks"


@dataclass
class Ticks:
    """The folder with the trigger files of one stream."""

    spec: StreamSpec
    fold: Fold
    folder: LakePath
    _answered: int = field(default=-1, init=False)
    """The micro-batch after which the last trigger file was written: one is enough."""

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return a source that has data whenever a trigger file was written."""
        self._prepare()
        # A trigger file removed before it was read has served its purpose: the micro-batch has begun.
        return spark.readStream.schema(_SCHEMA).option("ignoreMissingFiles", "true").json(uri(self.folder))

    def begin(self) -> None:
        """Fire before the query starts if the state of an earlier process is due by now."""
        self._prepare()
        kept = self.fold.keeper.kept()
        if kept is not None:
            self._give(kept)

    def _prepare(self) -> None:
        """Create the folder; a bucket has no empty folders, so it gets a file that Spark ignores."""
        make_folder(self.folder)
        write_atomically(self.folder / _NOBODYS, "")

    def give(self) -> None:
        """Fire when silence alone has brought the watermark to where rows are emitted; called often."""
        if self.fold.last is not None:
            self._give(self.fold.last)

    def _give(self, kept: Kept) -> None:
        at = int(now().timestamp() * 1_000_000)
        if kept.number == self._answered or not _is_time(kept, self.spec, at):
            return
        self._answered = kept.number
        before: list[LakePath] = [item for item in self.folder.iterdir() if item.name != _NOBODYS]
        for old in before:
            old.unlink(missing_ok=True)
        write_atomically(self.folder / f"{at}.json", f'{{"_flow_tick": {at}}}')


def _is_time(kept: Kept, spec: StreamSpec, at: int) -> bool:
    wakes = wakes_at(Times(kept.newest, kept.heard, kept.mark), kept.due, spec.watermark)
    return wakes is not None and at >= wakes
