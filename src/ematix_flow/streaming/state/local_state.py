"""State backends on a disk: beside the checkpoint, or gone with the process."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ematix_flow.backends.catalog import backend_of_kind
from ematix_flow.contract.state import (
    StateBackend,
    StateLocation,
    StateManifest,
    manifest_from_text,
    manifest_to_text,
    missing_part,
    parts_named,
)
from ematix_flow.dataplane.parquet_stage import scratch_dir
from ematix_flow.dataplane.spark_session import active_session, observed_counts
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.foundation.errors import LeaseLost
from ematix_flow.storage.paths import (
    LOCK,
    LakePath,
    engine_uri,
    make_folder,
    read_text_if_exists,
    remove,
    replace_text,
    safe_file_name,
    size_below,
    write_atomically,
)
from ematix_flow.streaming.runtime.checkpoint_folder import CheckpointFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOTE = "kept.json"
_SCHEMA = "_schema.json"
_PATTERN = re.compile(r"[\\{}\[\]*?]")
"""Characters that Spark takes for a pattern in a path to read."""


def state_backend_of(spec: StreamSpec, folder: CheckpointFolder, generation: str) -> StateBackend:
    """Return the declared state backend of a stream, by default a folder beside its checkpoint."""
    store = spec.state_store
    if store is None:
        return FolderStateBackend(folder.root / "state")
    if store.url is None:
        return MemoryStateBackend.opened()
    maker = backend_of_kind(store.kind).state_backend
    if maker is None:
        raise AssertionError(f"{store.kind} keeps no state")
    return maker(StateLocation(store.url, store.schema, spec.name, generation, folder.generation_order()))


@dataclass
class FolderStateBackend:
    """State in a folder: every part is a folder of Parquet files, with its schema beside them."""

    root: LakePath
    _seen: str | None = field(default=None, init=False)
    """The manifest as this process last read or wrote it: it replaces only that one."""

    def _folder(self, part: str) -> LakePath:
        return self.root / f"part-{safe_file_name(part)}"

    def manifest(self) -> StateManifest | None:
        """Return the last manifest; None before the first."""
        self._seen = read_text_if_exists(self.root / NOTE)
        return manifest_from_text(self._seen, str(self.root)) if self._seen is not None else None

    def read(self, part: str) -> DataFrame:
        """Return the rows of a part with its stored schema, so that Spark does not read files to infer one."""
        from pyspark.sql.types import StructType

        folder = self._folder(part)
        schema = read_text_if_exists(folder / _SCHEMA)
        if schema is None:
            raise missing_part(part, str(self.root))
        literally = _PATTERN.sub(r"\\\g<0>", engine_uri(folder))
        return active_session().read.schema(StructType.fromJson(json.loads(schema))).parquet(literally)

    def write(self, part: str, frame: DataFrame) -> int:
        """Write one or several files, then the schema, which marks the part as complete; return its row count."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        folder, watch = self._folder(part), Observation()
        remove(folder)
        make_folder(self.root)
        rows = frame.hint("rebalance").observe(watch, f.count(f.lit(1)).alias("rows"))
        rows.write.mode("overwrite").parquet(engine_uri(folder))
        write_atomically(folder / _SCHEMA, frame.schema.json())
        counted = observed_counts(watch).get("rows")
        return int(counted) if counted is not None else self.read(part).count()

    def size(self, parts: Sequence[str]) -> int:
        """Return the size of these parts in bytes."""
        return sum(size_below(self._folder(part)) for part in parts)

    def commit(self, manifest: StateManifest) -> None:
        """Replace the manifest, and remove parts that it does not name; raise LeaseLost after another process's commit.

        A process that crashes after writing the manifest leaves parts that the next commit removes.
        """
        text = manifest_to_text(manifest)
        if not replace_text(self.root / NOTE, self._seen, text):
            raise LeaseLost(
                f"another process has written the state in {self.root} meanwhile; this one keeps nothing any more",
                hint="flow runs list shows who runs the stream now",
            )
        self._seen = text
        wanted = {NOTE, LOCK, *(self._folder(part).name for part in parts_named(manifest))}
        left: list[LakePath] = [item for item in self.root.iterdir() if item.name not in wanted]
        for item in left:
            if item.is_file():  # of a manifest that was never finished
                item.unlink(missing_ok=True)
            else:
                remove(item)

    def close(self) -> None:
        """Do nothing: no resource is open."""


@dataclass
class MemoryStateBackend(FolderStateBackend):
    """State that lasts as long as the process: in a temporary folder, where Spark's tasks find it."""

    open_until: ExitStack

    @classmethod
    def opened(cls) -> MemoryStateBackend:
        """Return a new, empty one."""
        open_until = ExitStack()
        return cls(scratch_dir(open_until), open_until)

    def close(self) -> None:
        """Delete the state."""
        self.open_until.close()
