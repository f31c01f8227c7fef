"""Where a lake keeps things: tables, stages and the product's own state below one root, and how folders change places.

The root is a folder of this machine, or a prefix of a bucket (`families.lake.s3`), which knows no renames.
"""

from __future__ import annotations

import ctypes
import errno
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

from ematix_flow.declare.connections.lakes import BucketConnection
from ematix_flow.families.lake.s3 import engine
from ematix_flow.families.lake.s3.bucket import ABSENT, Bucket, Changed
from ematix_flow.families.lake.s3.lease import leased
from ematix_flow.families.lake.s3.path import S3Path
from ematix_flow.families.lake.session import on_sail
from ematix_flow.foundation.errors import (
    ConnectionFailed,
    FlowError,
    PermissionDenied,
    RunFailed,
    StorageFull,
    Unsupported,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LakePath: TypeAlias = "Path | S3Path"

STATE_FOLDER = "_ematix_flow"
LOCK = ".lock"
"""Beside a text that several processes may replace."""
_LONGEST_NAME = 180
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_ASIDE = "replaced"
_FEW_BYTES = 8 * 1024 * 1024
_FEW_FILES = 500


class Hold(Protocol):
    """A lock that is held."""

    def check(self) -> None:
        """Stop unless it is still ours."""


class _Forever:
    """A lock that only the end of the process takes away."""

    def check(self) -> None:
        """It is ours."""


@dataclass(frozen=True)
class Place:
    """The root of one lake; every path the family uses is made here."""

    root: LakePath

    @classmethod
    def of(cls, connection: Any) -> Place:
        """The place that a connection names."""
        if isinstance(connection, BucketConnection):
            place = cls(S3Path(Bucket.of(connection), str(connection.resolved().fields.get("prefix", "")).strip("/")))
            place.meet(None)
            return place
        return cls(Path(connection.resolved().path).expanduser().absolute())

    @property
    def is_local(self) -> bool:
        """Whether the lake lies on a disk that this machine sees."""
        return isinstance(self.root, Path)

    def meet(self, spark: SparkSession | None) -> None:
        """Let a session know how to get here; without one, that of this process if it runs."""
        if isinstance(self.root, S3Path):
            engine.introduce(self.root.bucket, spark)

    def table(self, schema: str, name: str) -> LakePath:
        """The folder of a table."""
        return self.root / schema / name if schema else self.root / name

    def names_of(self, path: LakePath) -> tuple[str, ...]:
        """What follows the root."""
        if isinstance(path, S3Path):
            return path.relative_to(self.root).parts if isinstance(self.root, S3Path) else ()
        return path.relative_to(local(self.root)).parts

    def state(self, *parts: str) -> LakePath:
        """A path of the product's own."""
        return self.root.joinpath(STATE_FOLDER, *(safe_name(part) for part in parts))

    def stage(self, run_id: str, table: str) -> LakePath:
        """Where one run keeps the rows of one table before they are published."""
        return self.state("stage", run_id, table)

    @contextmanager
    def locked(self, table: str) -> Iterator[Hold]:
        """One publish per table at a time, among all processes that see the lake."""
        path = self.state("locks", table)
        if isinstance(path, S3Path):
            with leased(path) as lease:
                yield lease
            return
        with _locked(path):
            yield _Forever()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Among all processes of this machine."""
    try:
        import fcntl
    except ImportError:  # Windows has no flock; Delta's own log still refuses a second commit of one version
        yield
        return
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def roots(connection: Any) -> tuple[Path, ...]:
    """The root of a connection's lake on this machine: tasks read and write below it."""
    root = Place.of(connection).root
    return (root,) if isinstance(root, Path) else ()


def local(path: LakePath) -> Path:
    """A path that what follows can only take on this machine."""
    if isinstance(path, Path):
        return path
    raise Unsupported(f"this does not work in a bucket, and {path} is in one", hint='use engine="local"')


def uri(path: LakePath) -> str:
    """The path as the engine must be told, whatever its default file system is."""
    if isinstance(path, S3Path):
        return engine.address(path)
    if on_sail():
        return f"file://{quote(str(path))}"  # a URL, in which a * would be a pattern
    return f"file:{path}"


def safe_name(name: str) -> str:
    """A file name for any text: readable where it can be, never two texts for one name.

    >>> safe_name("orders.daily"), safe_name("a/b")
    ('orders.daily', 'a%2Fb')
    """
    escaped = quote(name, safe=" .,=+@-_()")
    if escaped in (".", ".."):
        escaped = escaped.replace(".", "%2E")
    if len(escaped) <= _LONGEST_NAME:
        return escaped
    return f"{escaped[:100]}~{sha256(name.encode()).hexdigest()[:32]}"


def read_if_there(path: LakePath) -> str | None:
    """The text at a path, None when there is nothing."""
    if isinstance(path, S3Path):
        found = path.bucket.get(path.key)
        return found.body.decode() if found is not None else None
    with explained(path):
        try:
            return path.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None


def write_atomically(path: LakePath, text: str) -> None:
    """Readers see the old text or the new one, also after a power cut."""
    if isinstance(path, S3Path):
        path.write_text(text)
        return
    with explained(path):
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
    """Write a text where `before` still is, or nothing where it is None; return whether it was so."""
    if isinstance(path, S3Path):
        found = path.bucket.get(path.key)
        if (found.body.decode() if found is not None else None) != before:
            return False
        try:
            path.bucket.put(path.key, after.encode(), match=found.tag if found is not None else ABSENT)
        except Changed:
            return False
        return True
    with _locked(path.with_name(LOCK)):
        if read_if_there(path) != before:
            return False
        write_atomically(path, after)
        return True


def append_line(path: LakePath, line: str) -> None:
    """One more line; a single write, so that two processes do not mix theirs. In a bucket every line is an object."""
    if isinstance(path, S3Path):
        (path / f"{time.time_ns():020}-{uuid.uuid4().hex[:8]}").write_text(line)
        return
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, (line + "\n").encode())
            os.fsync(handle)
        finally:
            os.close(handle)


def lines_of(path: LakePath) -> list[str]:
    """Every line that was appended, the oldest first."""
    if isinstance(path, S3Path):
        found = path.bucket.at_once(lambda item: path.bucket.get(item.key), path.bucket.listed(path.prefix))
        return [item.body.decode() for item in found if item is not None]
    return (read_if_there(path) or "").splitlines()


def move(source: Path, destination: Path) -> None:
    """One rename; it lasts when this returns."""
    with explained(destination):
        destination.parent.mkdir(parents=True, exist_ok=True)
        os.rename(source, destination)
        _sync_folder(destination.parent)


def exchange(first: Path, second: Path) -> None:
    """The first folder takes the place of the second: at once where the file system can, else by two renames.

    What was there is then beside the first; a process that dies between two renames leaves it for `put_back`.
    """
    with explained(second):
        if not _swapped(first, second):
            os.rename(second, first.with_name(_ASIDE))
            try:
                os.rename(first, second)
            except OSError:
                os.rename(first.with_name(_ASIDE), second)
                raise
        _sync_folder(second.parent)


def put_back(first: Path, second: Path) -> None:
    """Undo an exchange that stopped half-way."""
    aside = first.with_name(_ASIDE)
    if aside.exists() and not second.exists():
        move(aside, second)


def make_folder(path: LakePath) -> None:
    """A folder and those above it; a bucket has none to make."""
    if isinstance(path, Path):
        with explained(path):
            path.mkdir(parents=True, exist_ok=True)


def size_below(folder: LakePath) -> int:
    """The bytes of all files in a folder and below it."""
    if isinstance(folder, S3Path):
        return sum(item.size for item in folder.bucket.listed(folder.prefix))
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def rename(path: LakePath, other: LakePath) -> None:
    """Another name for a file or a folder; in a bucket object by object."""
    if isinstance(path, S3Path) and isinstance(other, S3Path):
        path.rename(other)
        return
    with explained(path):
        local(path).rename(local(other))


def remove(path: LakePath) -> None:
    """The path and all below it, if it is there."""
    if isinstance(path, S3Path):
        path.bucket.delete_below(path.prefix)
        return
    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def explained(path: LakePath) -> Iterator[None]:
    """File errors in the product's words."""
    try:
        yield
    except OSError as exc:
        raise translate_os(exc, path) from exc


def translate_os(exc: OSError, path: LakePath | str) -> FlowError:
    """One file error."""
    reason = exc.strerror or str(exc)
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"no space left for {path}", hint="free space on that disk and run again")
    if exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return PermissionDenied(f"{path}: {reason}", hint="give this user the right to write there")
    if exc.errno == errno.ENOTDIR:
        return ConnectionFailed(f"{path}: a file stands where a folder belongs", hint="check the connection's path")
    return RunFailed(f"{path}: {reason}", hint="check that the folder is there and can be written")


def _swapped(first: Path, second: Path) -> bool:
    """Whether the kernel exchanged both names in one step."""
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


def weighs_little(root: LakePath) -> bool:
    """Whether a file, or everything below a folder, is little; a large folder is not looked through for that."""
    if isinstance(root, S3Path):
        return False  # Spark reads buckets, whatever is in them
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
