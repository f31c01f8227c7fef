"""Triggers micro-batches while all sources are silent, by files beside the checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ematix_flow.contract.state import StateManifest
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.foundation.clock import now
from ematix_flow.storage.paths import LakePath, engine_uri, make_folder, write_atomically
from ematix_flow.streaming.state.processor import StatefulProcessor
from ematix_flow.streaming.state.watermark import EventTimes, wake_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER = "ticks"
_SCHEMA = "_flow_tick BIGINT"
_NOBODYS = "_ticks"


@dataclass
class IdleTrigger:
    """The folder with the trigger files of one stream."""

    spec: StreamSpec
    processor: StatefulProcessor
    folder: LakePath
    _answered: int = field(default=-1, init=False)
    """The micro-batch after which the last trigger file was written: one is enough."""

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return a source that has data whenever a trigger file was written."""
        self._prepare()
        # A trigger file removed before it was read has served its purpose: the micro-batch has begun.
        return spark.readStream.schema(_SCHEMA).option("ignoreMissingFiles", "true").json(engine_uri(self.folder))

    def begin(self) -> None:
        """Fire before the query starts if the state of an earlier process is due by now."""
        self._prepare()
        manifest = self.processor.backend.manifest()
        if manifest is not None:
            self._fire(manifest)

    def _prepare(self) -> None:
        """Create the folder; a bucket has no empty folders, so it gets a file that Spark ignores."""
        make_folder(self.folder)
        write_atomically(self.folder / _NOBODYS, "")

    def fire_if_due(self) -> None:
        """Fire when silence alone has brought the watermark to where rows are emitted; called often."""
        if self.processor.last is not None:
            self._fire(self.processor.last)

    def _fire(self, manifest: StateManifest) -> None:
        at = int(now().timestamp() * 1_000_000)
        if manifest.number == self._answered or not _is_due(manifest, self.spec, at):
            return
        self._answered = manifest.number
        before: list[LakePath] = [item for item in self.folder.iterdir() if item.name != _NOBODYS]
        for old in before:
            old.unlink(missing_ok=True)
        write_atomically(self.folder / f"{at}.json", f'{{"_flow_tick": {at}}}')


def _is_due(manifest: StateManifest, spec: StreamSpec, at: int) -> bool:
    wakes = wake_time(EventTimes(manifest.newest, manifest.heard, manifest.mark), manifest.due, spec.watermark)
    return wakes is not None and at >= wakes
