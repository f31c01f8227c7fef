"""What is new in a folder of files: only files that nobody writes to any more, and batches that are published."""

from __future__ import annotations

import os
import time
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ematix_flow.backends.files.batches import batches_of
from ematix_flow.backends.files.layout import BATCH
from ematix_flow.declare.connections.lakes import format_from_path
from ematix_flow.families.lake.place import LakePath, explained, local
from ematix_flow.families.lake.s3.path import S3Path

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
class Arrived:
    """One file, or one batch of a table that the product wrote: its name below the folder, its size and its time."""

    name: str
    size: int
    modified: float


@dataclass
class Folder:
    """One watched folder or prefix."""

    path: LakePath
    file_format: str
    is_ours: bool
    """Whether the product writes the table: then batches arrive, each at once."""
    settle: float = SETTLE_SECONDS
    """A file in which nothing was written for so many seconds is whole, where its format does not tell."""
    _looked: dict[str, tuple[int, float, float]] = field(default_factory=dict, compare=False, repr=False)

    def arrived(self, seen: Container[str], *, wait: bool = False) -> list[Arrived]:
        """What is new and whole, the oldest first; with `wait` files that may still grow are waited for."""
        until = time.monotonic() + self.settle + 1
        while True:
            new = [item for item in self.present() if item.name not in seen]
            whole = [item for item in new if self._is_whole(item)]
            if not wait or len(whole) == len(new) or time.monotonic() > until:
                # As rows are ordered by their files, whose times Spark knows in milliseconds.
                return sorted(whole, key=lambda item: (int(item.modified * 1000), item.name))
            time.sleep(_PAUSE)

    def present(self) -> list[Arrived]:
        """Everything that is there, whole or not."""
        if self.is_ours:
            return list(self._batches())
        found = self._objects(self.path) if isinstance(self.path, S3Path) else self._files(self.path)
        return [item for item in found if self._is_meant(item.name)]

    def rows_in(self, item: Arrived) -> int | None:
        """How many rows a file has at most, where that can be told without reading it as Spark does."""
        if self.is_ours or isinstance(self.path, S3Path):
            return None
        file = self._file(item.name)
        with explained(file):
            if self.file_format == "parquet":
                return _rows_of_parquet(file)
            is_plain = file.suffix.lower() not in _PACKED
            return _lines_of(file) if is_plain and self.file_format in ("csv", "json_lines") else None

    def _batches(self) -> Iterator[Arrived]:
        """Batches by the run that loaded them: one that was written anew holds no other rows."""
        for batch in batches_of(self.path):
            run_id = batch.name.removeprefix(f"{BATCH}=").partition("~")[0]
            yield Arrived(run_id, 0, batch.stat().st_mtime if isinstance(batch, Path) else 0.0)

    def _objects(self, path: S3Path) -> Iterator[Arrived]:
        begin = len(path.prefix)
        for item in path.bucket.listed(path.prefix):
            yield Arrived(item.key[begin:], item.size, item.modified.timestamp())

    def _files(self, path: Path) -> Iterator[Arrived]:
        with explained(path):
            if path.is_file():
                yield _about(path, path.name)
                return
            for folder, folders, names in os.walk(path):
                folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
                for name in names:
                    file = Path(folder, name)
                    try:
                        yield _about(file, file.relative_to(path).as_posix())
                    except FileNotFoundError:  # it was moved on meanwhile
                        continue

    def _is_meant(self, name: str) -> bool:
        """Hidden files, those of other formats and those that say they are not finished are left alone."""
        if any(part.startswith((".", "_")) for part in name.split("/")) or name.lower().endswith(_UNFINISHED):
            return False
        return format_from_path(name) in (self.file_format, None)

    def _is_whole(self, item: Arrived) -> bool:
        """Objects and batches appear at once; a file is whole when its end says so, or when it has come to rest."""
        if self.is_ours or isinstance(self.path, S3Path):
            return True
        if self.file_format == "parquet":
            return _is_parquet(self._file(item.name))
        if self.file_format == "orc":
            return _is_orc(self._file(item.name))
        # Its own time may be that of another machine's clock, so what was seen here counts as well.
        size, modified, since = self._looked.get(item.name, (-1, 0.0, 0.0))
        if (size, modified) != (item.size, item.modified):
            since = time.monotonic()
            self._looked[item.name] = (item.size, item.modified, since)
        rested = 0 <= self.settle <= time.time() - item.modified or time.monotonic() - since >= self.settle
        if rested:
            self._looked.pop(item.name, None)
        return rested

    def _file(self, name: str) -> Path:
        path = local(self.path)
        return path if path.is_file() else path / name

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_looked": {}}


def _about(path: Path, name: str) -> Arrived:
    about = path.stat()
    return Arrived(name, about.st_size, about.st_mtime)


def _is_parquet(path: Path) -> bool:
    """It begins with its mark as well, so a file of a few bytes says nothing."""
    tail = _tail(path, _SHORTEST_PARQUET)
    return len(tail) == _SHORTEST_PARQUET and tail.endswith(_PARQUET_ENDS)


def _is_orc(path: Path) -> bool:
    """The last byte says how long the part before it is, which ends with the name of the format."""
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
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path).num_rows)


def _lines_of(path: Path) -> int:
    with path.open("rb") as file:
        return 1 + sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(_CHUNK), b""))
