"""State backends: a folder beside the checkpoint, a folder that ends with the process, or PostgreSQL."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.engine.streams.folder import StreamFolder
from ematix_flow.engine.streams.stateful.keeper import Keeper, Kept
from ematix_flow.engine.streams.stateful.notes import kept_of, missing, named, text_of
from ematix_flow.engine.streams.stateful.postgres_keeper import PostgresKeeper
from ematix_flow.families.lake.place import (
    LOCK,
    LakePath,
    make_folder,
    read_if_there,
    remove,
    replace_text,
    safe_name,
    size_below,
    uri,
    write_atomically,
)
from ematix_flow.families.lake.session import active
from ematix_flow.families.observed import heard
from ematix_flow.families.parquet_stage import scratch_dir
from ematix_flow.foundation.errors import LeaseLost

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOTE = "kept.json"
_SCHEMA = "_schema.json"
_PATTERN = re.compile(r"[\\{}\[\]*?]")
"""Characters that Spark takes for a pattern in a path to read."""


def keeper_of(spec: StreamSpec, folder: StreamFolder, generation: str) -> Keeper:
    """Return the declared state backend of a stream, by default a folder beside its checkpoint."""
    store = spec.state_store
    if store is None:
        return FolderKeeper(folder.root / "state")
    if store.url is None:
        return MemoryKeeper.opened()
    return PostgresKeeper(
        url=store.url, schema=store.schema, stream=spec.name, generation=generation, since=folder.since()
    )


@dataclass
class FolderKeeper:
    """State in a folder: every part is a folder of Parquet files, with its schema beside them."""

    root: LakePath
    _seen: str | None = field(default=None, init=False)
    """The manifest as this process last read or wrote it: it replaces only that one."""

    def _folder(self, part: str) -> LakePath:
        return self.root / f"part-{safe_name(part)}"

    def kept(self) -> Kept | None:
        """Return the last manifest; None before the first."""
        self._seen = read_if_there(self.root / NOTE)
        return kept_of(self._seen, str(self.root)) if self._seen is not None else None

    def read(self, part: str) -> DataFrame:
        """Return the rows of a part with its stored schema, so that Spark does not read files to infer one."""
        from pyspark.sql.types import StructType

        folder = self._folder(part)
        schema = read_if_there(folder / _SCHEMA)
        if schema is None:
            raise missing(part, str(self.root))
        literally = _PATTERN.sub(r"\\\g<0>", uri(folder))
        return active().read.schema(StructType.fromJson(json.loads(schema))).parquet(literally)

    def write(self, part: str, frame: DataFrame) -> int:
        """Write one or several files, then the schema, which marks the part as complete; return its row count."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        folder, watch = self._folder(part), Observation()
        remove(folder)
        make_folder(self.root)
        rows = frame.hint("rebalance").observe(watch, f.count(f.lit(1)).alias("rows"))
        rows.write.mode("overwrite").parquet(uri(folder))
        write_atomically(folder / _SCHEMA, frame.schema.json())
        counted = heard(watch).get("rows")
        return int(counted) if counted is not None else self.read(part).count()

    def size(self, parts: Sequence[str]) -> int:
        """Return the size of these parts in bytes."""
        return sum(size_below(self._folder(part)) for part in parts)

    def commit(self, kept: Kept) -> None:
        """Replace the manifest, and remove parts that it does not name; raise LeaseLost after another process's commit.

        A process that crashes after writing the manifest leaves parts that the next commit removes.
        """
        text = text_of(kept)
        if not replace_text(self.root / NOTE, self._seen, text):
            raise LeaseLost(
                f"another process has written the state in {self.root} meanwhile; this one keeps nothing any more",
                hint="flow runs list shows who runs the stream now",
            )
        self._seen = text
        wanted = {NOTE, LOCK, *(self._folder(part).name for part in named(kept))}
        left: list[LakePath] = [item for item in self.root.iterdir() if item.name not in wanted]
        for item in left:
            if item.is_file():  # of a manifest that was never finished
                item.unlink(missing_ok=True)
            else:
                remove(item)

    def close(self) -> None:
        """Do nothing: no resource is open."""


@dataclass
class MemoryKeeper(FolderKeeper):
    """State that lasts as long as the process: in a temporary folder, where Spark's tasks find it."""

    open_until: ExitStack

    @classmethod
    def opened(cls) -> MemoryKeeper:
        """Return a new, empty one."""
        open_until = ExitStack()
        return cls(scratch_dir(open_until), open_until)

    def close(self) -> None:
        """Delete the state."""
        self.open_until.close()
