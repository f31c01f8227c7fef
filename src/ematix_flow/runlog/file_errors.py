"""Translation of errors of SQLite, DuckDB and the file system about a run log file."""

from __future__ import annotations

import errno

from ematix_flow.foundation.errors import ConnectionFailed, FlowError, PermissionDenied, StorageFull, Unreachable

_ELSEWHERE = "point --run-log-path or EMATIX_FLOW_RUN_LOG_PATH elsewhere, or pass --no-run-log"

_NOT_OURS = ("readonly", "read-only", "permission denied")
_NO_RUN_LOG = ("not a database", "malformed", "not a valid DuckDB database")


def translate(error: BaseException, path: str) -> FlowError:
    """Return a FlowError that names the file, with a hint."""
    told = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    said = told.strip().partition("\n")[0]
    number = error.errno if isinstance(error, OSError) else None
    if "locked" in said:
        return Unreachable(f"the run log {path} is busy: {said}", hint="try again in a moment")
    if "full" in said or number in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"no room left for the run log {path}", hint=f"free some space; or {_ELSEWHERE}")
    if any(sign in said.lower() for sign in _NOT_OURS) or number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return PermissionDenied(f"the run log {path} cannot be written: {said}", hint=_ELSEWHERE)
    if any(sign in said for sign in _NO_RUN_LOG):
        return ConnectionFailed(f"{path} is not a run log: {said}", hint=f"move the file away; or {_ELSEWHERE}")
    return ConnectionFailed(f"the run log {path} cannot be opened: {said}", hint=_ELSEWHERE)
