"""The product's cache folder, and values that are kept for as long as the files they came from stay the same."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def cache_home() -> Path:
    """Return EMATIX_FLOW_CACHE, else the product's folder in the user's cache."""
    own = os.environ.get("EMATIX_FLOW_CACHE")
    if own:
        return Path(own).expanduser()
    users = os.environ.get("XDG_CACHE_HOME")
    return (Path(users) if users else Path.home() / ".cache") / "ematix-flow"


Stamp = Collection[tuple[Any, ...]]
"""For each file its path, its modification time in nanoseconds or its ETag in a bucket, and its size."""
_CLOCK_NS = 100_000_000
_MONTH = 30 * 86400


@dataclass(frozen=True)
class ContentCache:
    """One folder of the cache; increase `rules` when the same files give another result."""

    name: str
    rules: int

    def load(self, stamp: Stamp, options: Mapping[str, Any]) -> Any | None:
        """Return the cached result for the same files and options, None when there is none."""
        try:
            return json.loads(self._file(stamp, options).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None

    def store(self, stamp: Stamp, options: Mapping[str, Any], value: Any) -> None:
        """Store a result, unless a file may still change within one step of the file system's clock."""
        newest = max((item[1] for item in stamp if isinstance(item[1], int)), default=0)
        if time.time_ns() - newest < _CLOCK_NS:
            return
        file = self._file(stamp, options)
        part = file.with_suffix(f".{time.time_ns()}.part")
        with contextlib.suppress(OSError):  # a failed write to the cache only costs time later
            file.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps(value), encoding="utf-8")
            part.replace(file)
            _forget_older(file.parent)

    def _file(self, stamp: Stamp, options: Mapping[str, Any]) -> Path:
        key = json.dumps([self.rules, sorted(map(list, stamp), key=str), sorted(options.items())], default=str)
        return cache_home() / self.name / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _forget_older(folder: Path) -> None:
    for file in folder.iterdir():
        if time.time() - file.stat().st_mtime > _MONTH:
            file.unlink(missing_ok=True)
