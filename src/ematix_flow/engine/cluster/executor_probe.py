"""The executor probe: reports a worker's Python and packages, and whether it shares this machine's folders."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

SLOT_SECONDS = 0.1


@dataclass(frozen=True)
class FolderMark:
    """A folder with a mark that shows whether another machine accesses the same folder."""

    folder: str
    file: str
    number: int
    changed: int


@contextmanager
def mark_folders(folders: Sequence[Path]) -> Iterator[list[FolderMark]]:
    """Yield marks: a new file in each folder, or where none can be written, the folder's inode number and time."""
    name = f".ematix-flow-seen-{secrets.token_hex(8)}"
    created: list[Path] = []
    try:
        yield [_mark(folder, name, created) for folder in folders]
    finally:
        for path in created:
            with suppress(OSError):
                path.unlink()


def _mark(folder: Path, name: str, created: list[Path]) -> FolderMark:
    nearest_folder = next((path for path in (folder, *folder.parents) if path.is_dir()), Path("/"))
    file: str | None = None
    with suppress(OSError):
        (nearest_folder / name).touch(mode=0o644)
        created.append(nearest_folder / name)
        file = str(nearest_folder / name)
    about = nearest_folder.stat()
    return FolderMark(
        str(folder), file or str(nearest_folder), 0 if file else about.st_ino, 0 if file else about.st_mtime_ns
    )


def executor_probe(packages: Sequence[str], marks: Sequence[FolderMark]) -> Callable[[int], str]:
    """Return the probe for a task; it uses no names of this package, because workers may not have it installed."""
    wanted, pause = list(packages), SLOT_SECONDS
    looked = [(mark.folder, mark.file, mark.number, mark.changed) for mark in marks]

    def look(_: int) -> str:
        import importlib
        import json
        import os
        import socket
        import sys
        import time

        def is_there(name: str) -> bool:
            try:
                importlib.import_module(name)
            except Exception:  # a task that needs the package would fail in the same way
                return False
            return True

        def is_seen(file: str, number: int, changed: int) -> bool:
            try:
                about = os.stat(file)
            except OSError:
                return False
            return not number or (about.st_ino, about.st_mtime_ns) == (number, changed)

        time.sleep(pause)  # so that every free slot gets one probe
        return json.dumps(
            {
                "host": socket.gethostname(),
                "python": list(sys.version_info[:3]),
                "program": sys.executable,
                "missing": [name for name in wanted if not is_there(name)],
                "unseen": [folder for folder, file, number, at in looked if not is_seen(file, number, at)],
            }
        )

    return look
