"""Lists the new files of a folder: only files that are completely written, and batches that are published."""

from __future__ import annotations

import os
import time
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ematix_flow.backends.files.layout import BATCH
from ematix_flow.backends.files.published_batches import batches_of
from ematix_flow.declare.connections.lakes import format_from_path
from ematix_flow.foundation.lazy_imports import pq
from ematix_flow.storage.os_errors import translated_os_errors
from ematix_flow.storage.paths import LakePath, require_local
from ematix_flow.storage.s3_path import S3Path

SETTLE_SECONDS = 5.0
_UNFINISHED = (
    ".tmp",
    ".temp",
    ".part",
    ".partial",
    ".inprogress",
    ".in-progress",
    ".filepart",
    ".crdownload",
    ".writing",
    ".swp",
)
_PACKED = (".gz", ".gzip", ".bz2", ".zst", ".zstd", ".lz4", ".snappy", ".deflate", ".xz")
_CHUNK = 1024 * 1024
_PARQUET_ENDS = (b"PAR1", b"PARE")
_SHORTEST_PARQUET = 12
_PAUSE = 0.2


@dataclass(frozen=True)
class NewFile:
    """One file, or one batch of an ematix-flow table: its name below the folder, bytes and mtime in epoch seconds."""

    name: str
    size: int
    modified: float


@dataclass
class WatchedFolder:
    """A watched folder or prefix."""

    path: LakePath
    file_format: str
    is_ours: bool
    """Whether ematix-flow writes the table: then it contains published batches, each complete."""
    settle: float = SETTLE_SECONDS
    """Seconds without a write after which a file is complete, where its format does not show that."""
    _looked: dict[str, tuple[int, float, float]] = field(default_factory=dict, compare=False, repr=False)

    def arrived(self, seen: Container[str], *, wait: bool = False) -> list[NewFile]:
        """Return the new complete files, oldest first; `wait` waits up to `settle` + 1 seconds for incomplete ones."""
        until = time.monotonic() + self.settle + 1
        while True:
            new = [item for item in self.present() if item.name not in seen]
            whole = [item for item in new if self._is_complete(item)]
            if not wait or len(whole) == len(new) or time.monotonic() > until:
                # Rows are ordered by their files, whose times Spark has in milliseconds.
                return sorted(whole, key=lambda item: (int(item.modified * 1000), item.name))
            time.sleep(_PAUSE)

    def present(self) -> list[NewFile]:
        """Return all files, complete or not."""
        if self.is_ours:
            return list(self._batches())
        items = self._objects(self.path) if isinstance(self.path, S3Path) else self._files(self.path)
        return [item for item in items if self._is_data_file(item.name)]

    def rows_in(self, item: NewFile) -> int | None:
        """Return the most rows a file can have, None where only reading it with Spark would show that."""
        if self.is_ours or isinstance(self.path, S3Path):
            return None
        file = self._file(item.name)
        with translated_os_errors(file):
            if self.file_format == "parquet":
                return _rows_of_parquet(file)
            is_plain = file.suffix.lower() not in _PACKED
            return _lines_of(file) if is_plain and self.file_format in ("csv", "json_lines") else None

    def _batches(self) -> Iterator[NewFile]:
        """Yield batches by the run that loaded them: a rewritten batch contains the same rows."""
        for batch in batches_of(self.path):
            run_id = batch.name.removeprefix(f"{BATCH}=").partition("~")[0]
            yield NewFile(run_id, 0, batch.stat().st_mtime if isinstance(batch, Path) else 0.0)

    def _objects(self, path: S3Path) -> Iterator[NewFile]:
        begin = len(path.prefix)
        for item in path.bucket.listed(path.prefix):
            yield NewFile(item.key[begin:], item.size, item.modified.timestamp())

    def _files(self, path: Path) -> Iterator[NewFile]:
        with translated_os_errors(path):
            if path.is_file():
                yield _file_facts(path, path.name)
                return
            for folder, folders, names in os.walk(path):
                folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
                for name in names:
                    file = Path(folder, name)
                    try:
                        yield _file_facts(file, file.relative_to(path).as_posix())
                    except FileNotFoundError:  # it was moved away meanwhile
                        continue

    def _is_data_file(self, name: str) -> bool:
        """Return whether a file is to be read: not hidden, not marked as unfinished, and of this format."""
        if any(part.startswith((".", "_")) for part in name.split("/")) or name.lower().endswith(_UNFINISHED):
            return False
        return format_from_path(name) in (self.file_format, None)

    def _is_complete(self, item: NewFile) -> bool:
        """Return whether a file is complete: published at once, with a valid end, or unchanged for `settle` seconds."""
        if self.is_ours or isinstance(self.path, S3Path):
            return True
        if self.file_format == "parquet":
            return _is_parquet(self._file(item.name))
        if self.file_format == "orc":
            return _is_orc(self._file(item.name))
        # The mtime may be from another machine's clock: the time since this process saw the last change counts too.
        size, modified, since = self._looked.get(item.name, (-1, 0.0, 0.0))
        if (size, modified) != (item.size, item.modified):
            since = time.monotonic()
            self._looked[item.name] = (item.size, item.modified, since)
        rested = 0 <= self.settle <= time.time() - item.modified or time.monotonic() - since >= self.settle
        if rested:
            self._looked.pop(item.name, None)
        return rested

    def _file(self, name: str) -> Path:
        path = require_local(self.path)
        return path if path.is_file() else path / name

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_looked": {}}


def _file_facts(path: Path, name: str) -> NewFile:
    about = path.stat()
    return NewFile(name, about.st_size, about.st_mtime)


def _is_parquet(path: Path) -> bool:
    """Return whether the file ends with Parquet's magic bytes; they also begin it, so a shorter file proves nothing."""
    tail = _tail(path, _SHORTEST_PARQUET)
    return len(tail) == _SHORTEST_PARQUET and tail.endswith(_PARQUET_ENDS)


def _is_orc(path: Path) -> bool:
    """Return whether the file ends with an ORC postscript: the format name, then its length in one byte."""
    tail = _tail(path, 256)
    return len(tail) > 4 and tail[-4:-1] == b"ORC" and 0 < tail[-1] <= len(tail)


def _tail(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most))
            return file.read()
    except OSError:
        return b""


def _rows_of_parquet(path: Path) -> int:
    return int(pq.read_metadata(path).num_rows)


def _lines_of(path: Path) -> int:
    with path.open("rb") as file:
        return 1 + sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(_CHUNK), b""))
