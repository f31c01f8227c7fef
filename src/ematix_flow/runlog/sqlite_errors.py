"""What SQLite and the file system say about the run log, in the product's words."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

from ematix_flow.foundation.errors import ConnectionFailed, FlowError, PermissionDenied, StorageFull, Unreachable

_ELSEWHERE = "point --run-log-path or EMATIX_FLOW_RUN_LOG_PATH elsewhere, or pass --no-run-log"


def translate(error: sqlite3.Error | OSError, path: Path) -> FlowError:
    """One sentence about the file, and where to go from here."""
    said = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    number = error.errno if isinstance(error, OSError) else None
    if "locked" in said:
        return Unreachable(f"the run log {path} is busy: {said}", hint="try again in a moment")
    if "full" in said or number in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"no room left for the run log {path}", hint=f"free some space; or {_ELSEWHERE}")
    if "readonly" in said or "read-only" in said.lower() or number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return PermissionDenied(f"the run log {path} cannot be written: {said}", hint=_ELSEWHERE)
    if "not a database" in said or "malformed" in said:
        return ConnectionFailed(f"{path} is not a run log: {said}", hint=f"move the file away; or {_ELSEWHERE}")
    return ConnectionFailed(f"the run log {path} cannot be opened: {said}", hint=_ELSEWHERE)
