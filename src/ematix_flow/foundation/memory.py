"""The memory that this process may use: that of the machine, or less in a container with a limit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")


def usable_memory() -> int | None:
    """Return the bytes of memory of this machine or container; None if they cannot be determined."""
    limits = [limit for file in _limit_files() if (limit := _limit(file)) is not None]
    try:
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (ValueError, OSError, AttributeError):
        return min(limits, default=None)
    return min(limits)


def _limit_files(groups: Path = _GROUPS, own: Path = _OWN_GROUP) -> Iterator[Path]:
    """Yield the limit files of the control groups of this process, of both cgroup versions."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds not in ("", "memory"):
            continue
        top, name = (groups / kinds, "memory.limit_in_bytes") if kinds else (groups, "memory.max")
        group = Path(path.lstrip("/"))
        for folder in (group, *group.parents):  # inside a container only the last one is visible
            yield top / folder / name


def _limit(file: Path) -> int | None:
    try:
        return int(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # "max" means no limit
        return None
