"""The pinned jar sets beside pyspark's own jars: downloaded once, verified, and cached per user."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ematix_flow.engine.session import ivy
from ematix_flow.foundation.cache import cache_home
from ematix_flow.foundation.errors import ConfigError, FlowError, RunFailed, StorageFull
from ematix_flow.foundation.names import did_you_mean

LOCK = Path(__file__).with_name("jars.lock.toml")


@dataclass(frozen=True)
class Jar:
    """One pinned jar and the SHA-256 checksum of its bytes."""

    group: str
    artifact: str
    version: str
    sha256: str
    classifier: str = ""
    ext: str = "jar"

    @property
    def file_name(self) -> str:
        """Return its file name in the cache."""
        return ivy.file_name(self)


def ensure_jars(sets: Iterable[str], *, lock: Path = LOCK, on_progress: ivy.Progress | None = None) -> list[Path]:
    """Return the files of these jar sets, in the order of the lock file; missing ones are downloaded first.

    `ensure_jars(["delta"])` returns the paths for `spark.jars`. A file in the cache is verified once, and again when its
    size or modification time differs.
    """
    wanted = _chosen(list(sets), among=read_lock(lock))
    folder = cache_folder()
    verified = _Verified(folder)
    missing = [jar for jar in wanted if not verified.is_intact(folder / jar.file_name, jar.sha256)]
    verified.save()
    if missing:
        _fetch(missing, folder=folder, on_progress=on_progress or (lambda _: None))
    return [folder / jar.file_name for jar in wanted]


def with_cached_sets(needed: Iterable[str], *, lock: Path = LOCK) -> list[str]:
    """Return these jar sets and all others that are already cached, in the order of the lock file.

    A session with all of them also serves the next pipeline, and one class archive serves all sessions.
    """
    wanted, folder = set(needed), cache_folder()
    known = read_lock(lock)
    cached = [name for name, jars in known.items() if all((folder / jar.file_name).exists() for jar in jars)]
    return [*(name for name in known if name in wanted or name in cached), *sorted(wanted - set(known))]


def read_lock(lock: Path = LOCK) -> dict[str, tuple[Jar, ...]]:
    """Return the jar sets of a lock file by name."""
    sets = _parse(lock)
    return {name: tuple(Jar(**jar) for jar in entry["jars"]) for name, entry in sets.items()}


def cache_folder() -> Path:
    """Return the folder of the jar cache: EMATIX_FLOW_CACHE, else the user's cache folder."""
    return cache_home() / "jars"


def _parse(lock: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    with lock.open("rb") as file:
        return tomllib.load(file)


def _chosen(sets: list[str], *, among: dict[str, tuple[Jar, ...]]) -> list[Jar]:
    """Return the jars of the named sets, each once; raise ConfigError for an unknown set."""
    for name in sets:
        if name not in among:
            raise ConfigError(f"there is no jar set {name!r}", hint=did_you_mean(name, among))
    return list(dict.fromkeys(jar for name in sets for jar in among[name]))


class _Verified:
    """The cached files that were verified, by size and time: reading all of them takes longer than starting a JVM."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / ".verified.json"
        self._known: dict[str, list[object]] = {}
        self._is_changed = False
        with contextlib.suppress(OSError, ValueError):
            data = json.loads(self._file.read_text(encoding="utf-8"))
            self._known = data if isinstance(data, dict) else {}

    def is_intact(self, path: Path, sha256: str) -> bool:
        try:
            status = path.stat()
        except OSError:
            return False
        stamp = [status.st_size, status.st_mtime_ns, sha256]
        if self._known.get(path.name) == stamp:
            return True
        if not _is_intact(path, sha256):
            return False
        self._known[path.name] = stamp
        self._is_changed = True
        return True

    def save(self) -> None:
        """Write the verified files; if the cache is not writable, they are verified again next time."""
        if not self._is_changed:
            return
        part = self._file.with_suffix(f".{os.getpid()}.part")
        with contextlib.suppress(OSError):
            part.write_text(json.dumps(self._known), encoding="utf-8")
            part.replace(self._file)


def _is_intact(path: Path, sha256: str) -> bool:
    """Return whether the file exists with exactly the pinned bytes."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except OSError:
        return False
    return digest.hexdigest() == sha256


def _fetch(jars: list[Jar], *, folder: Path, on_progress: ivy.Progress) -> None:
    """Download into a temporary folder beside the cache, verify, then rename, so that no process sees partial jars."""
    on_progress(f"fetching {len(jars)} {'jar' if len(jars) == 1 else 'jars'}, once")
    workshop: Path | None = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        workshop = Path(tempfile.mkdtemp(prefix=".fetch-", dir=folder))
        ivy.fetch_jars(jars, into=workshop, on_progress=on_progress)
        for jar in jars:
            _refuse_unless_intact(workshop / jar.file_name, jar)
        for jar in jars:
            (workshop / jar.file_name).replace(folder / jar.file_name)
    except FlowError:
        raise
    except OSError as error:
        raise _storage_error(error, folder=folder) from error
    finally:
        if workshop is not None:
            shutil.rmtree(workshop, ignore_errors=True)


def _refuse_unless_intact(path: Path, jar: Jar) -> None:
    if not _is_intact(path, jar.sha256):
        raise RunFailed(
            f"{jar.artifact} {jar.version} arrived with other bytes than the lock file names; it was thrown away",
            hint="run it again; if it stays so, the repository or a mirror on the way serves a changed file",
        )


def _storage_error(error: OSError, *, folder: Path) -> FlowError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"no room left in {folder}", hint="free some space, or point EMATIX_FLOW_CACHE elsewhere")
    return RunFailed(
        f"the jar cache {folder} cannot be used: {error.strerror or error}",
        hint="set EMATIX_FLOW_CACHE to a folder you may write to",
    )


def main(sets: list[str]) -> int:
    """Run `python -m ematix_flow.engine.session.jars [set …]`: fill the cache, with all sets if none is named."""

    def tell(line: str) -> None:
        sys.stderr.write(f"  {line}\n")

    try:
        paths = ensure_jars(sets or list(read_lock()), on_progress=tell)
    except FlowError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write("".join(f"{path}\n" for path in paths))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
