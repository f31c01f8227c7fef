"""A path in a bucket, with the pathlib methods that lakes use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import total_ordering
from pathlib import PurePosixPath

from ematix_flow.storage.object_store import in_parallel
from ematix_flow.storage.s3_bucket import S3Bucket


@total_ordering
@dataclass(frozen=True)
class S3Path:
    """An object or a prefix in a bucket; a folder exists as long as there are objects below it."""

    bucket: S3Bucket
    key: str = ""
    _is_folder: bool | None = field(default=None, compare=False, repr=False)
    """Whether a listing showed this path as a folder, to save a request; None if unknown."""

    def __truediv__(self, name: str) -> S3Path:
        return S3Path(self.bucket, f"{self.key}/{name}" if self.key else name)

    def __str__(self) -> str:
        return f"{self.bucket.label}/{self.key}" if self.key else self.bucket.label

    def __lt__(self, other: S3Path) -> bool:
        return self.key < other.key

    def joinpath(self, *names: str) -> S3Path:
        """Return the path below."""
        path = self
        for name in names:
            path = path / name
        return path

    @property
    def name(self) -> str:
        """Return the last part of the key."""
        return self.key.rpartition("/")[2]

    def with_name(self, name: str) -> S3Path:
        """Return a path with another name in the same folder."""
        return self.parent / name

    @property
    def stem(self) -> str:
        """Return the last part without its extension."""
        return PurePosixPath(self.name).stem

    @property
    def parent(self) -> S3Path:
        """Return the parent path."""
        return S3Path(self.bucket, self.key.rpartition("/")[0])

    def rename(self, other: S3Path) -> None:
        """Copy an object, or everything below a prefix, to another path, then delete the originals; idempotent."""
        items = [
            item for item in self.bucket.listed(self.key) if item.key == self.key or item.key.startswith(self.prefix)
        ]
        in_parallel(lambda item: self.bucket.copy(item, other.key + item.key[len(self.key) :]), items)
        self.bucket.delete(item.key for item in items)

    def relative_to(self, other: S3Path) -> PurePosixPath:
        """Return the part of the key below another path."""
        return PurePosixPath(self.key).relative_to(other.key) if other.key else PurePosixPath(self.key)

    def exists(self) -> bool:
        """Return whether an object exists here or below."""
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        """Return whether this is an object."""
        return not self._is_folder if self._is_folder is not None else self.bucket.first(self.key) == self.key

    def is_dir(self) -> bool:
        """Return whether objects exist below."""
        return self._is_folder if self._is_folder is not None else self.bucket.first(self.prefix) is not None

    def iterdir(self) -> Iterator[S3Path]:
        """Yield the direct children; none if the folder does not exist."""
        folders, objects = self.bucket.children(self.prefix)
        yield from (S3Path(self.bucket, key, True) for key in folders)
        yield from (S3Path(self.bucket, item.key, False) for item in objects)

    def glob(self, pattern: str) -> Iterator[S3Path]:
        """Yield the direct children that match the pattern, or deeper ones for a pattern with slashes."""
        depth = pattern.count("/") + 1
        if depth == 1:
            yield from (item for item in self.iterdir() if fnmatchcase(item.name, pattern))
            return
        for item in self.rglob("*"):
            parts = item.relative_to(self).parts
            if len(parts) == depth and all(map(fnmatchcase, parts, pattern.split("/"))):
                yield item

    def rglob(self, pattern: str) -> Iterator[S3Path]:
        """Yield the objects at any depth whose names match the pattern."""
        for item in self.bucket.listed(self.prefix):
            if fnmatchcase(item.key.rpartition("/")[2], pattern):
                yield S3Path(self.bucket, item.key)

    def read_bytes(self) -> bytes:
        """Return the content of the object; raise FileNotFoundError if it does not exist."""
        stored = self.bucket.get(self.key)
        if stored is None:
            raise FileNotFoundError(f"{self} is not there")
        return stored.body

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the text of the object."""
        return self.read_bytes().decode(encoding)

    def write_text(self, text: str, encoding: str = "utf-8") -> None:
        """Write a text as the object."""
        self.bucket.put(self.key, text.encode(encoding))

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the object; a missing one is no error."""
        self.bucket.delete([self.key])

    @property
    def prefix(self) -> str:
        """Return the key prefix of everything below."""
        return f"{self.key}/" if self.key else ""
