"""A path in a bucket, with the words of pathlib that lakes use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import total_ordering
from pathlib import PurePosixPath

from ematix_flow.families.lake.s3.bucket import Bucket


@total_ordering
@dataclass(frozen=True)
class S3Path:
    """An object, or all that lies below a prefix; folders are there as long as something is in them."""

    bucket: Bucket
    key: str = ""
    _is_folder: bool | None = field(default=None, compare=False, repr=False)
    """What a listing said, which need not be asked again."""

    def __truediv__(self, name: str) -> S3Path:
        return S3Path(self.bucket, f"{self.key}/{name}" if self.key else name)

    def __str__(self) -> str:
        return f"{self.bucket.label}/{self.key}" if self.key else self.bucket.label

    def __lt__(self, other: S3Path) -> bool:
        return self.key < other.key

    def joinpath(self, *names: str) -> S3Path:
        """The path below."""
        path = self
        for name in names:
            path = path / name
        return path

    @property
    def name(self) -> str:
        """The last part."""
        return self.key.rpartition("/")[2]

    def with_name(self, name: str) -> S3Path:
        """Another one beside it."""
        return self.parent / name

    @property
    def stem(self) -> str:
        """The last part without its ending."""
        return PurePosixPath(self.name).stem

    @property
    def parent(self) -> S3Path:
        """The path above."""
        return S3Path(self.bucket, self.key.rpartition("/")[0])

    def rename(self, other: S3Path) -> None:
        """Copy an object, or everything below, to another place, then delete it here; may be done again."""
        items = [
            item for item in self.bucket.listed(self.key) if item.key == self.key or item.key.startswith(self.prefix)
        ]
        self.bucket.at_once(lambda item: self.bucket.copy(item, other.key + item.key[len(self.key) :]), items)
        self.bucket.delete(item.key for item in items)

    def relative_to(self, other: S3Path) -> PurePosixPath:
        """What follows another path."""
        return PurePosixPath(self.key).relative_to(other.key) if other.key else PurePosixPath(self.key)

    def exists(self) -> bool:
        """Whether an object is there, or something below."""
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        """Whether it is an object."""
        return not self._is_folder if self._is_folder is not None else self.bucket.first(self.key) == self.key

    def is_dir(self) -> bool:
        """Whether something is below."""
        return self._is_folder if self._is_folder is not None else self.bucket.first(self.prefix) is not None

    def iterdir(self) -> Iterator[S3Path]:
        """What is directly below; nothing when there is nothing."""
        folders, objects = self.bucket.children(self.prefix)
        yield from (S3Path(self.bucket, key, True) for key in folders)
        yield from (S3Path(self.bucket, item.key, False) for item in objects)

    def glob(self, pattern: str) -> Iterator[S3Path]:
        """What is directly below and has such a name, or lies deeper for a pattern with slashes."""
        depth = pattern.count("/") + 1
        if depth == 1:
            yield from (item for item in self.iterdir() if fnmatchcase(item.name, pattern))
            return
        for item in self.rglob("*"):
            parts = item.relative_to(self).parts
            if len(parts) == depth and all(map(fnmatchcase, parts, pattern.split("/"))):
                yield item

    def rglob(self, pattern: str) -> Iterator[S3Path]:
        """The objects at any depth whose names are like this."""
        for item in self.bucket.listed(self.prefix):
            if fnmatchcase(item.key.rpartition("/")[2], pattern):
                yield S3Path(self.bucket, item.key)

    def read_bytes(self) -> bytes:
        """What is in an object."""
        found = self.bucket.get(self.key)
        if found is None:
            raise FileNotFoundError(f"{self} is not there")
        return found.body

    def read_text(self, encoding: str = "utf-8") -> str:
        """The text of an object."""
        return self.read_bytes().decode(encoding)

    def write_text(self, text: str, encoding: str = "utf-8") -> None:
        """Write an object."""
        self.bucket.put(self.key, text.encode(encoding))

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete an object."""
        self.bucket.delete([self.key])

    @property
    def prefix(self) -> str:
        """How the keys of everything below begin."""
        return f"{self.key}/" if self.key else ""
