"""Runs one command and writes down what it cost: `python launch.py REPORT LOG STOP_AFTER PATIENCE -- COMMAND…`.

It is a process of its own, and the reaper of everything below the command: a JVM that outlives the Python that started
it is still waited for, so its CPU seconds are counted. Imports only the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")


def main(words: list[str]) -> int:
    report, log, stop_after, patience = words[0], words[1], float(words[2]), float(words[3])
    command = words[5:]
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with open(log, "wb") as output:
        started = time.monotonic()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        stopped = not _ends_within(child, stop_after)
        wall = time.monotonic() - started
    if stopped:
        _end_all()
    left = _wait_for_the_rest(patience)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    facts = {
        "wall": wall,
        "cpu": used.ru_utime + used.ru_stime + sum(_cpu_of(pid) for pid in left),
        "peak_mb": used.ru_maxrss / 1024,
        "code": child.returncode if not stopped else None,
        "stopped": stopped,
        "left_running": len(left),
    }
    Path(report).write_text(json.dumps(facts), encoding="utf-8")
    return 0


def _ends_within(child: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        child.wait(seconds if seconds > 0 else None)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end_all() -> None:
    """Kill everything below us, children first come to us as their parents die."""
    while below := _descendants():
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _reap()
        time.sleep(0.05)


def _wait_for_the_rest(patience: float) -> list[int]:
    """What the command left behind is waited for; the processes that stay are given back."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if not _reap():
            return []
        time.sleep(0.02)
    return _descendants()


def _reap() -> bool:
    """Take the ended children; whether some are still there."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True


def _descendants() -> list[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int(_stat(entry)[1])
    found, level = [], [os.getpid()]
    while level:
        level = [pid for pid, parent in parents.items() if parent in level]
        found += level
    return found


def _cpu_of(pid: int) -> float:
    with contextlib.suppress(OSError):
        fields = _stat(Path("/proc") / str(pid))
        return sum(int(fields[place]) for place in (11, 12, 13, 14)) / _TICKS
    return 0.0


def _stat(folder: Path) -> list[str]:
    """The fields after the name, which may hold blanks and brackets: state, parent, …"""
    return (folder / "stat").read_text().rpartition(") ")[2].split()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
