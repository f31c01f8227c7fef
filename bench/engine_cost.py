"""What a warm engine used while a command ran on it: CPU seconds and memory of its processes, read from /proc."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "EMATIX_FLOW_ENGINE_DIR"
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class EngineCost:
    """CPU seconds so far of an engine's processes and of their ended children, and the memory of the largest one."""

    cpu: float
    peak_mb: float

    @classmethod
    def of(cls, folder: str) -> EngineCost:
        """Add up the processes that were started with this engine folder in their environment."""
        wanted = f"{VARIABLE}={folder}".encode()
        cpu, peak = 0.0, 0.0
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):  # it ended meanwhile, or belongs to another user
                    if wanted in (entry / "environ").read_bytes().split(b"\0"):
                        cpu += _cpu_seconds(entry)
                        peak = max(peak, _peak_mb(entry))
        return cls(cpu, peak)


def _cpu_seconds(entry: Path) -> float:
    """User and system time of a process, and of its children that have ended and were waited for."""
    fields = (entry / "stat").read_text().rpartition(") ")[2].split()
    return sum(int(fields[place]) for place in (11, 12, 13, 14)) / _TICKS


def _peak_mb(entry: Path) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", (entry / "status").read_text())
    return int(found[1]) / 1024 if found else 0.0
