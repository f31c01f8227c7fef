"""The spool's folder: files are written atomically and durably, and one process at a time holds its lock."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import IO

from ematix_flow.foundation.errors import LeaseHeld
from ematix_flow.storage import file_locks
from ematix_flow.storage.addresses import path_of_address
from ematix_flow.storage.os_errors import translated_os_errors
from ematix_flow.storage.paths import LakePath, read_text_if_exists, safe_file_name
from ematix_flow.storage.s3_path import S3Path

LOCK_SECONDS = 60.0
_PART = ".part"


def spool_folder(checkpoint: str, source: str) -> LakePath:
    """Return the spool's folder below the stream's checkpoint, on a disk that the tasks can read or in a bucket."""
    return path_of_address(checkpoint) / "spool" / safe_file_name(source)


def spool_folder_at(root: LakePath) -> SpoolFolder:
    """Return the spool folder at a local path or in a bucket."""
    return SpoolFolder(root) if isinstance(root, Path) else BucketSpoolFolder(root)


class SpoolFolder:
    """One spool on disk."""

    root: Path
    look_seconds = 0.1
    """The shortest interval, in seconds, between two checks for a new commit note."""

    def __init__(self, root: LakePath) -> None:
        self.root = root  # type: ignore[assignment]
        self._lock: IO[bytes] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"root": self.root, "_lock": None}

    def acquire(self, seconds: float = LOCK_SECONDS) -> None:
        """Take the exclusive lock; raise LeaseHeld when another process holds it for longer than `seconds`."""
        if self._lock is None:
            self._lock = file_locks.lock_file(self.root / "lock", self._in_use, seconds=seconds)

    def _in_use(self) -> LeaseHeld:
        return LeaseHeld(
            f"another process still fills the spool {self.root}",
            hint="one stream at a time reads a queue into it: end the other one, or wait for it",
        )

    def release(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def path(self, name: str) -> str | S3Path:
        """Return the full path of a file, for its readers."""
        return str(self.root / name)

    def stamp(self, name: str) -> tuple[object, ...] | None:
        """Return a value that changes whenever the file is rewritten; None when the file does not exist."""
        try:
            status = os.stat(self.root / name)
        except FileNotFoundError:
            return None
        return status.st_mtime_ns, status.st_ino

    def written_at(self, name: str) -> float:
        """Return when the file was written, in seconds since the epoch."""
        return os.stat(self.root / name).st_mtime

    def names(self) -> list[str]:
        """Return the sorted names of the files, without unfinished drafts."""
        with translated_os_errors(self.root):
            names = sorted(os.listdir(self.root)) if self.root.exists() else []
        return [name for name in names if not name.endswith(_PART)]

    def sweep(self, suffix: str) -> None:
        """Delete drafts of files with this suffix that a dead process left."""
        for path in self.root.glob(f".*{suffix}{_PART}"):
            self.remove(path.name)

    def write(self, name: str, content: bytes, *, durable: bool = True) -> None:
        """Write atomically: no reader sees half a file; with `durable`, content and name survive a crash."""
        path, part = self.root / name, self.root / f".{name}{_PART}"
        with translated_os_errors(path):
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
        """Return the text of a small file; None when it does not exist."""
        return read_text_if_exists(self.root / name)

    def remove(self, name: str) -> None:
        """Delete a file; a missing one is no error."""
        with translated_os_errors(self.root / name):
            (self.root / name).unlink(missing_ok=True)

    def sync(self) -> None:
        """Sync the folder, so that renames and deletions survive a crash."""
        handle = os.open(self.root, os.O_RDONLY)
        try:
            with suppress(OSError):  # some file systems cannot sync a folder; the rename itself is done all the same
                os.fsync(handle)
        finally:
            os.close(handle)


class BucketSpoolFolder(SpoolFolder):
    """One spool in a bucket: a put object is complete at once, and the stream's own lease excludes other processes."""

    root: S3Path  # type: ignore[assignment]
    look_seconds = 1.0

    def acquire(self, seconds: float = LOCK_SECONDS) -> None:
        """Do nothing: the stream's own lease excludes other processes."""

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
        """Do nothing: a bucket has no drafts."""

    def write(self, name: str, content: bytes, *, durable: bool = True) -> None:
        self.root.bucket.put((self.root / name).key, content)

    def sync(self) -> None:
        """Do nothing: every write is durable."""
