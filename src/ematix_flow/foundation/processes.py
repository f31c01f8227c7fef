"""Processor seconds, memory and state of process trees, read from Linux's /proc; unknown on other systems."""

from __future__ import annotations

import os
from collections.abc import Iterable

_PROC = "/proc"
_PARENT, _TIMES = 1, slice(11, 15)  # counted after the program's name, which may contain blanks and brackets


def cpu_seconds(roots: Iterable[int]) -> dict[int, float] | None:
    """Return the CPU seconds of each process tree, including ended children that were waited for; None if unknown."""
    processes = _all_processes()
    if not processes:
        return None
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in processes.items():
        children.setdefault(parent, []).append(pid)
    tick = os.sysconf("SC_CLK_TCK")
    return {root: sum(processes[pid][1] for pid in _tree(root, children)) / tick for root in roots if root in processes}


def descendants(roots: Iterable[int]) -> list[int]:
    """Return the children of these processes, their children, and so on; empty where /proc is missing."""
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in _all_processes().items():
        children.setdefault(parent, []).append(pid)
    return [pid for root in roots for pid in _tree(root, children)[1:]]


def memory_bytes(root: int) -> int | None:
    """Return the resident memory in bytes of a process and its descendants; None where it is unknown."""
    page, total = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0, 0
    for pid in (root, *descendants([root])):
        try:
            total += int(_read(f"{_PROC}/{pid}/statm").split()[1]) * page
        except (OSError, ValueError, IndexError):
            continue
    return total or None


def is_stopped(pid: int) -> bool:
    """Return whether a process is suspended by a signal or a debugger, and so cannot answer; False where unknown."""
    try:
        return _read(f"{_PROC}/{pid}/stat").rpartition(b")")[2].split(None, 1)[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False


def is_running(pid: int, module: str) -> bool:
    """Return whether a process was started as `python -m module`, or is a fork of one; False where unknown."""
    try:
        return f"\0-m\0{module}\0".encode() in _read(f"{_PROC}/{pid}/cmdline")
    except OSError:
        return False


def _tree(root: int, children: dict[int, list[int]]) -> list[int]:
    members = [root]
    for pid in members:  # the list grows during the iteration
        members += children.get(pid, ())
    return members


def _all_processes() -> dict[int, tuple[int, int]]:
    """Return the parent and the clock ticks of every visible process."""
    processes = {}
    try:
        names = os.listdir(_PROC)
    except OSError:
        return {}
    for name in names:
        if name.isdigit():
            try:
                fields = _read(f"{_PROC}/{name}/stat").rpartition(b")")[2].split(None, _TIMES.stop)
                processes[int(name)] = (int(fields[_PARENT]), sum(map(int, fields[_TIMES])))
            except (OSError, ValueError, IndexError):  # it has just ended, or this is not Linux
                continue
    return processes


def _read(path: str) -> bytes:
    """Return the content of a short file, without the buffers of `open`: there may be hundreds of files."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
