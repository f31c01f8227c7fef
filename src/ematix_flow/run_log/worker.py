"""The identity of a worker, a process as `host:pid:starttime`, and the check whether that process is dead."""

from __future__ import annotations

import os
import socket
from functools import lru_cache
from pathlib import Path

from ematix_flow.run_log.records import RunRecord

# The PID namespace in which a Linux kernel starts.
_FIRST_NAMESPACE = "pid:[4026531836]"
DIED = "died"
_START_TIME_FIELD = 19  # counted after the program's name, which may itself contain blanks and brackets


def this_worker() -> str:
    """Return the id of this process, unique even if its pid is reused."""
    return worker_of(os.getpid())


def worker_of(pid: int) -> str:
    """Return the worker id of any process of this machine."""
    return f"{_host()}:{pid}:{_start_time(pid) or 0}"


def is_dead(worker_id: str) -> bool:
    """Return whether this process has certainly ended; False if that cannot be determined on this machine."""
    host, pid, started = _parts(worker_id)
    if host not in (_host(), _name()) or pid is None or os.name != "posix":
        return False
    if not _exists(pid):
        return True
    now_started = _start_time(pid)
    return started != "0" and now_started is not None and now_started != started


def _parts(worker_id: str) -> tuple[str, int | None, str]:
    host, _, rest = worker_id.partition(":")
    pid, _, started = rest.partition(":")
    return host, int(pid) if pid.isdigit() and int(pid) > 0 else None, started or "0"


def _name() -> str:
    return socket.gethostname().replace(":", "-")


@lru_cache(maxsize=1)
def _host() -> str:
    """Return the machine's name; in a container with its PID namespace, where the same pid is another process."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        return _name()
    return _name() if namespace == _FIRST_NAMESPACE else f"{_name()}/{namespace[5:-1]}"


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Return whether a process has ended and is only not reaped by its parent yet."""
    fields = _stat(pid)
    return bool(fields) and fields[0] == "Z"


def _start_time(pid: int) -> str | None:
    fields = _stat(pid)
    return fields[_START_TIME_FIELD] if len(fields) > _START_TIME_FIELD else None


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def has_dead_worker(record: RunRecord) -> bool:
    """Return whether the process of a run has certainly ended."""
    return is_dead(str(record.extras.get("worker") or ""))


def shown_status(record: RunRecord) -> str:
    """Return the status, or `died` for a running record whose process has ended."""
    return DIED if record.status == "running" and has_dead_worker(record) else record.status
