"""Micro-batches of a stream whose sources are silent: a file beside the checkpoint is one more source, and wakes it up.

Spark begins a micro-batch only when a source has something. What a tick says does not matter: the fold looks at the clock.
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
    """The folder of ticks of one stream."""

    spec: StreamSpec
    fold: Fold
    folder: LakePath
    _answered: int = field(default=-1, init=False)
    """The micro-batch behind which the last tick was given: one is enough."""

    def frame(self, spark: SparkSession) -> DataFrame:
        """A source that has something whenever a tick was given."""
        self._prepare()
        # A tick that was removed before it was read has done its work: the micro-batch is there.
        return spark.readStream.schema(_SCHEMA).option("ignoreMissingFiles", "true").json(uri(self.folder))

    def begin(self) -> None:
        """Before the query starts: what an earlier process remembered may be over by now."""
        self._prepare()
        kept = self.fold.keeper.kept()
        if kept is not None:
            self._give(kept)

    def _prepare(self) -> None:
        """A bucket has no empty folders: something that Spark passes over lies in it."""
        make_folder(self.folder)
        write_atomically(self.folder / _NOBODYS, "")

    def give(self) -> None:
        """Asked often: a tick, when silence alone has brought the watermark to where something comes out."""
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
