"""Types that were found in the values of a file, kept for as long as the file is the same one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ematix_flow.foundation.cache import cache_home

Stamp = Collection[tuple[Any, ...]]
_RULES = 1
"""Counted up when types are found by other rules."""
_CLOCK_NS = 100_000_000
_MONTH = 30 * 86400


def recall(stamp: Stamp, options: Mapping[str, Any], columns: Sequence[str]) -> dict[str, str] | None:
    """Return the types of these columns as they were found in the same files, None when they must be found anew."""
    try:
        found = json.loads(_file(stamp, options).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    known = isinstance(found, dict) and list(found) == list(columns)
    return {name: str(kind) for name, kind in found.items()} if known else None


def keep(stamp: Stamp, options: Mapping[str, Any], kinds: Mapping[str, str]) -> None:
    """Keep what was found; not of a file that may change again within one step of the file system's clock."""
    newest = max((item[1] for item in stamp if isinstance(item[1], int)), default=0)
    if time.time_ns() - newest < _CLOCK_NS:
        return
    file = _file(stamp, options)
    part = file.with_suffix(f".{time.time_ns()}.part")
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time and nothing else
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(dict(kinds)), encoding="utf-8")
        part.replace(file)
        _forget_older(file.parent)


def _file(stamp: Stamp, options: Mapping[str, Any]) -> Path:
    said = json.dumps([_RULES, sorted(map(list, stamp), key=str), sorted(options.items())], default=str)
    return cache_home() / "types" / f"{hashlib.sha256(said.encode()).hexdigest()[:32]}.json"


def _forget_older(folder: Path) -> None:
    for file in folder.iterdir():
        if time.time() - file.stat().st_mtime > _MONTH:
            file.unlink(missing_ok=True)
