"""Paths of a lake on a disk or in a bucket, atomic writes, renames and locks."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from urllib.parse import quote

from ematix_flow.dataplane.spark_session import is_active_session_sail
from ematix_flow.declare.connections.lakes import BucketConnection
from ematix_flow.foundation.errors import Unsupported
from ematix_flow.storage import s3_spark
from ematix_flow.storage.file_locks import locked_file
from ematix_flow.storage.lease import unlimited_lease
from ematix_flow.storage.object_store import ABSENT, ConditionFailed, in_parallel
from ematix_flow.storage.os_errors import translated_os_errors
from ematix_flow.storage.s3_bucket import S3Bucket
from ematix_flow.storage.s3_lease import hold_lease
from ematix_flow.storage.s3_path import S3Path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LakePath: TypeAlias = "Path | S3Path"

STATE_FOLDER = "_ematix_flow"
LOCK = ".lock"
"""The lock file beside a text that several processes may replace."""
_LONGEST_NAME = 180
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_ASIDE = "replaced"
_FEW_BYTES = 8 * 1024 * 1024
_FEW_FILES = 500


class HeldLock(Protocol):
    """A lock that is held."""

    def check(self) -> None:
        """Raise an error if the lock is no longer held."""


@dataclass(frozen=True)
class LakeRoot:
    """The root of one lake, from which every path of the lake is built."""

    root: LakePath

    @classmethod
    def of(cls, connection: Any) -> LakeRoot:
        """Return the root of a connection; register its bucket with the running Spark session."""
        if isinstance(connection, BucketConnection):
            place = cls(S3Path(S3Bucket.of(connection), str(connection.resolved().fields.get("prefix", "")).strip("/")))
            place.register(None)
            return place
        return cls(Path(connection.resolved().path).expanduser().absolute())

    @property
    def is_local(self) -> bool:
        """Return whether the lake is on a disk of this machine."""
        return isinstance(self.root, Path)

    def register(self, spark: SparkSession | None) -> None:
        """Configure the bucket's access in a Spark session; without one, in that of this process if it runs."""
        if isinstance(self.root, S3Path):
            s3_spark.register_bucket(self.root.bucket, spark)

    def table(self, schema: str, name: str) -> LakePath:
        """Return the folder of a table."""
        return self.root / schema / name if schema else self.root / name

    def names_of(self, path: LakePath) -> tuple[str, ...]:
        """Return the parts of the path below the root."""
        if isinstance(path, S3Path):
            return path.relative_to(self.root).parts if isinstance(self.root, S3Path) else ()
        return path.relative_to(require_local(self.root)).parts

    def state(self, *parts: str) -> LakePath:
        """Return a path in the folder of our own metadata."""
        return self.root.joinpath(STATE_FOLDER, *(safe_file_name(part) for part in parts))

    def stage(self, run_id: str, table: str) -> LakePath:
        """Return the folder in which one run stages the rows of one table."""
        return self.state("stage", run_id, table)

    @contextmanager
    def locked(self, table: str) -> Iterator[HeldLock]:
        """Hold the publish lock of a table, exclusive among all processes that use the lake."""
        path = self.state("locks", table)
        if isinstance(path, S3Path):
            with hold_lease(path) as lease:
                yield lease
            return
        with locked_file(path):
            yield unlimited_lease()


def storage_folders(connection: Any) -> tuple[Path, ...]:
    """Return the root of a connection's lake if it is on this machine: tasks read and write below it."""
    root = LakeRoot.of(connection).root
    return (root,) if isinstance(root, Path) else ()


def require_local(path: LakePath) -> Path:
    """Return a path of this machine; raise `Unsupported` for one in a bucket."""
    if isinstance(path, Path):
        return path
    raise Unsupported(f"this does not work in a bucket, and {path} is in one", hint='use engine="local"')


def engine_uri(path: LakePath) -> str:
    """Return the path as a URI for the engine, independent of its default file system."""
    if isinstance(path, S3Path):
        return s3_spark.spark_address(path)
    if is_active_session_sail():
        return f"file://{quote(str(path))}"  # a URL, because * in a path would be a pattern
    return f"file:{path}"


def safe_file_name(name: str) -> str:
    """Return a file name for any text: readable where possible, different for different texts.

    >>> safe_file_name("orders.daily"), safe_file_name("a/b")
    ('orders.daily', 'a%2Fb')
    """
    escaped = quote(name, safe=" .,=+@-_()")
    if escaped in (".", ".."):
        escaped = escaped.replace(".", "%2E")
    if len(escaped) <= _LONGEST_NAME:
        return escaped
    return f"{escaped[:100]}~{sha256(name.encode()).hexdigest()[:32]}"


def read_text_if_exists(path: LakePath) -> str | None:
    """Return the text at a path, None when there is none."""
    if isinstance(path, S3Path):
        stored = path.bucket.get(path.key)
        return stored.body.decode() if stored is not None else None
    with translated_os_errors(path):
        try:
            return path.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None


def write_atomically(path: LakePath, text: str) -> None:
    """Write a text so that readers see the old or the new one, also after a power failure."""
    if isinstance(path, S3Path):
        path.write_text(text)
        return
    with translated_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as out:
                out.write(text)
                out.flush()
                os.fsync(out.fileno())
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        _sync_folder(path.parent)


def replace_text(path: LakePath, before: str | None, after: str) -> bool:
    """Replace the text if it still equals `before` (None: no text exists); return whether it was replaced."""
    if isinstance(path, S3Path):
        stored = path.bucket.get(path.key)
        if (stored.body.decode() if stored is not None else None) != before:
            return False
        try:
            path.bucket.put(path.key, after.encode(), match=stored.tag if stored is not None else ABSENT)
        except ConditionFailed:
            return False
        return True
    with locked_file(path.with_name(LOCK)):
        if read_text_if_exists(path) != before:
            return False
        write_atomically(path, after)
        return True


def append_line(path: LakePath, line: str) -> None:
    """Append a line by one write, so that lines of two processes do not mix; in a bucket each line is an object."""
    if isinstance(path, S3Path):
        (path / f"{time.time_ns():020}-{uuid.uuid4().hex[:8]}").write_text(line)
        return
    with translated_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, (line + "\n").encode())
            os.fsync(handle)
        finally:
            os.close(handle)


def lines_of(path: LakePath) -> list[str]:
    """Return every appended line, oldest first."""
    if isinstance(path, S3Path):
        objects = in_parallel(lambda item: path.bucket.get(item.key), path.bucket.listed(path.prefix))
        return [item.body.decode() for item in objects if item is not None]
    return (read_text_if_exists(path) or "").splitlines()


def move(source: Path, destination: Path) -> None:
    """Rename a local path durably."""
    with translated_os_errors(destination):
        destination.parent.mkdir(parents=True, exist_ok=True)
        os.rename(source, destination)
        _sync_folder(destination.parent)


def exchange_folders(first: Path, second: Path) -> None:
    """Replace the second folder by the first: atomically where the file system can, otherwise by two renames.

    The old folder is then beside the first; after a crash between both renames `put_back` restores it.
    """
    with translated_os_errors(second):
        if not _kernel_exchange(first, second):
            os.rename(second, first.with_name(_ASIDE))
            try:
                os.rename(first, second)
            except OSError:
                os.rename(first.with_name(_ASIDE), second)
                raise
        _sync_folder(second.parent)


def undo_exchange(first: Path, second: Path) -> None:
    """Undo an exchange that was interrupted between its renames."""
    aside = first.with_name(_ASIDE)
    if aside.exists() and not second.exists():
        move(aside, second)


def make_folder(path: LakePath) -> None:
    """Create a folder and its parents; a bucket needs none."""
    if isinstance(path, Path):
        with translated_os_errors(path):
            path.mkdir(parents=True, exist_ok=True)


def size_below(folder: LakePath) -> int:
    """Return the bytes of all files in a folder and below it."""
    if isinstance(folder, S3Path):
        return sum(item.size for item in folder.bucket.listed(folder.prefix))
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def rename(path: LakePath, other: LakePath) -> None:
    """Rename a file or folder; in a bucket object by object."""
    if isinstance(path, S3Path) and isinstance(other, S3Path):
        path.rename(other)
        return
    with translated_os_errors(path):
        require_local(path).rename(require_local(other))


def remove(path: LakePath) -> None:
    """Delete the path and everything below it, if it exists."""
    if isinstance(path, S3Path):
        path.bucket.delete_below(path.prefix)
        return
    shutil.rmtree(path, ignore_errors=True)


def _kernel_exchange(first: Path, second: Path) -> bool:
    """Return whether the kernel exchanged both names in one step."""
    if not sys.platform.startswith("linux"):
        return False
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    done = rename(
        ctypes.c_int(_AT_FDCWD),
        ctypes.c_char_p(os.fsencode(first)),
        ctypes.c_int(_AT_FDCWD),
        ctypes.c_char_p(os.fsencode(second)),
        ctypes.c_uint(_RENAME_EXCHANGE),
    )
    return bool(done == 0)


def _sync_folder(folder: Path) -> None:
    # Some file systems cannot sync a folder; the rename itself is done all the same.
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def holds_few_bytes(root: LakePath) -> bool:
    """Return whether a file, or everything below a folder, is small; the scan of a folder stops at the limits."""
    if isinstance(root, S3Path):
        return False  # buckets are always read by Spark
    if root.is_file():
        return root.stat().st_size <= _FEW_BYTES
    files = size = 0
    for folder, _, names in os.walk(root):
        files += len(names)
        if files > _FEW_FILES:
            return False
        with suppress(OSError):
            size += sum(os.path.getsize(os.path.join(folder, name)) for name in names)
        if size > _FEW_BYTES:
            return False
    return True
