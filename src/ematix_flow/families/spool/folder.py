"""The spool's folder: what is written there is there after a power cut, whole, and one process at a time has it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ematix_flow.families import locks
from ematix_flow.families.lake.homes import home_of
from ematix_flow.families.lake.place import LakePath, explained, read_if_there, safe_name
from ematix_flow.families.lake.s3.path import S3Path
from ematix_flow.foundation.errors import LeaseHeld

LOCK_SECONDS = 60.0
_PART = ".part"


def spool_folder(checkpoint: str, source: str) -> LakePath:
    """Below the stream's own folder, which is on a disk that tasks can see, or in a bucket."""
    return home_of(checkpoint) / "spool" / safe_name(source)


def folder_at(root: LakePath) -> Folder:
    """The spool at a place."""
    return Folder(root) if isinstance(root, Path) else BucketFolder(root)


class Folder:
    """One spool on disk."""

    root: Path
    look_seconds = 0.1
    """How often somebody may look whether a note was left."""

    def __init__(self, root: LakePath) -> None:
        self.root = root  # type: ignore[assignment]
        self._lock: int | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"root": self.root, "_lock": None}

    def take(self, seconds: float = LOCK_SECONDS) -> None:
        """Have it alone."""
        if self._lock is None:
            self._lock = locks.take(self.root / "lock", self._in_use, seconds=seconds)

    def _in_use(self) -> LeaseHeld:
        return LeaseHeld(
            f"another process still fills the spool {self.root}",
            hint="one stream at a time reads a queue into it: end the other one, or wait for it",
        )

    def leave(self) -> None:
        """Let others have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def path(self, name: str) -> str | S3Path:
        """Where a file is, for those who read it."""
        return str(self.root / name)

    def stamp(self, name: str) -> tuple[object, ...] | None:
        """Something that is another one whenever a file was written anew; None when it is not there."""
        try:
            found = os.stat(self.root / name)
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_ino

    def written_at(self, name: str) -> float:
        """When a file was written, as the seconds of a clock."""
        return os.stat(self.root / name).st_mtime

    def names(self) -> list[str]:
        """What is there, in order."""
        with explained(self.root):
            found = sorted(os.listdir(self.root)) if self.root.exists() else []
        return [name for name in found if not name.endswith(_PART)]

    def sweep(self, suffix: str) -> None:
        """Take drafts of such files away, which a process that died has left."""
        for path in self.root.glob(f".*{suffix}{_PART}"):
            self.remove(path.name)

    def write(self, name: str, content: bytes, *, durable: bool = True) -> None:
        """Draft, sync, rename, sync the folder: nobody ever sees half a file, and a name that was seen stays."""
        path, part = self.root / name, self.root / f".{name}{_PART}"
        with explained(path):
            self.root.mkdir(parents=True, exist_ok=True)
            try:
                with open(part, "wb") as out:
                    out.write(content)
                    out.flush()
                    if durable:
                        os.fsync(out.fileno())
                os.replace(part, path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(part)
                raise
            if durable:
                self.sync()

    def text(self, name: str) -> str | None:
        """A small file, None when it is not there."""
        with explained(self.root / name):
            try:
                return (self.root / name).read_text(encoding="utf-8")
            except FileNotFoundError:
                return None

    def remove(self, name: str) -> None:
        """Take a file away."""
        with explained(self.root / name):
            (self.root / name).unlink(missing_ok=True)

    def sync(self) -> None:
        """Names that were given or taken stay so."""
        handle = os.open(self.root, os.O_RDONLY)
        try:
            with suppress(OSError):  # some file systems cannot sync a folder; the rename itself is done all the same
                os.fsync(handle)
        finally:
            os.close(handle)


class BucketFolder(Folder):
    """One spool in a bucket, where an object is whole as soon as it is there; the stream's own lease keeps others away."""

    root: S3Path  # type: ignore[assignment]
    look_seconds = 1.0

    def take(self, seconds: float = LOCK_SECONDS) -> None:
        """Nobody else is there."""

    def path(self, name: str) -> str | S3Path:
        return self.root / name

    def stamp(self, name: str) -> tuple[object, ...] | None:
        key = (self.root / name).key
        return next(((item.tag, item.modified) for item in self.root.bucket.listed(key) if item.key == key), None)

    def written_at(self, name: str) -> float:
        key = (self.root / name).key
        for item in self.root.bucket.listed(key):
            if item.key == key:
                return item.modified.timestamp()
        raise FileNotFoundError(key)

    def names(self) -> list[str]:
        return sorted(item.name for item in self.root.iterdir())

    def sweep(self, suffix: str) -> None:
        """There are no drafts."""

    def write(self, name: str, content: bytes, *, durable: bool = True) -> None:
        self.root.bucket.put((self.root / name).key, content)

    def text(self, name: str) -> str | None:
        return read_if_there(self.root / name)

    def remove(self, name: str) -> None:
        (self.root / name).unlink()

    def sync(self) -> None:
        """Every write is there for good."""
