"""Who works: a process as `host:pid:starttime`, and whether that process is dead."""

from __future__ import annotations

import os
import socket
from functools import lru_cache
from pathlib import Path

from ematix_flow.runlog.records import RunRecord

# The process namespace a Linux kernel starts with.
_FIRST_NAMESPACE = "pid:[4026531836]"
DIED = "died"
_START_TIME_FIELD = 19  # counted behind the program's name, which may itself contain blanks and brackets


def this_worker() -> str:
    """This process, told apart from every other one that had or will have its number."""
    return worker_of(os.getpid())


def worker_of(pid: int) -> str:
    """Any process of this machine in the same words."""
    return f"{_host()}:{pid}:{_start_time(pid) or 0}"


def is_dead(worker_id: str) -> bool:
    """Whether this process has certainly ended; False whenever that cannot be known from here."""
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
    """The machine's name; inside a container also which one, because there the same pid is another process."""
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
    """A process that has ended and only waits for its parent to notice."""
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


def shown_status(record: RunRecord) -> str:
    """The status, except that a run whose process has ended without a word is not running."""
    worker = record.extras.get("worker")
    if record.status == "running" and isinstance(worker, str) and is_dead(worker):
        return DIED
    return record.status
