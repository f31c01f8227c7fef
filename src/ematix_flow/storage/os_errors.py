"""Translates the errors of file systems."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from ematix_flow.foundation.errors import ConnectionFailed, FlowError, PermissionDenied, RunFailed, StorageFull


@contextmanager
def translated_os_errors(path: object) -> Iterator[None]:
    """Translate OSErrors raised inside into FlowErrors."""
    try:
        yield
    except OSError as exc:
        raise translate_os(exc, path) from exc


def translate_os(exc: OSError, path: object) -> FlowError:
    """Return the FlowError for a file system error."""
    reason = exc.strerror or str(exc)
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"no space left for {path}", hint="free space on that disk and run again")
    if exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return PermissionDenied(f"{path}: {reason}", hint="give this user the right to write there")
    if exc.errno == errno.ENOTDIR:
        return ConnectionFailed(f"{path}: a file stands where a folder belongs", hint="check the connection's path")
    return RunFailed(f"{path}: {reason}", hint="check that the folder is there and can be written")
