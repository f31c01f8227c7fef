"""Imports drivers of run logs, and translates the errors of file-based ones."""

from __future__ import annotations

import errno
import functools
import re

from ematix_flow.foundation import drivers
from ematix_flow.foundation.errors import (
    ConfigError,
    ConnectionFailed,
    FlowError,
    PermissionDenied,
    StorageFull,
    Unreachable,
)

ELSEWHERE = "check the address (--run-log URL or EMATIX_FLOW_RUN_LOG_URL); or pass --no-run-log"
CONNECT_SECONDS = 5
require_driver = functools.partial(drivers.require_driver, needed_by="this run log")


def check_plain_name(name: str, *, what: str) -> str:
    """Return a name for use in statements; raise a ConfigError unless it has only letters, digits and _."""
    if not re.fullmatch(r"\w*", name):
        raise ConfigError(f"the run log's {what} {name!r} is not a plain name", hint="use letters, digits and _")
    return name


_ELSEWHERE = "point --run-log-path or EMATIX_FLOW_RUN_LOG_PATH elsewhere, or pass --no-run-log"

_NOT_OURS = ("readonly", "read-only", "permission denied")
_NO_RUN_LOG = ("not a database", "malformed", "not a valid DuckDB database")


def translate(error: BaseException, path: str) -> FlowError:
    """Return a FlowError that names the file, with a hint."""
    text = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    message = text.strip().partition("\n")[0]
    number = error.errno if isinstance(error, OSError) else None
    if "locked" in message:
        return Unreachable(f"the run log {path} is busy: {message}", hint="try again in a moment")
    if "full" in message or number in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"no room left for the run log {path}", hint=f"free some space; or {_ELSEWHERE}")
    if any(sign in message.lower() for sign in _NOT_OURS) or number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return PermissionDenied(f"the run log {path} cannot be written: {message}", hint=_ELSEWHERE)
    if any(sign in message for sign in _NO_RUN_LOG):
        return ConnectionFailed(f"{path} is not a run log: {message}", hint=f"move the file away; or {_ELSEWHERE}")
    return ConnectionFailed(f"the run log {path} cannot be opened: {message}", hint=_ELSEWHERE)
