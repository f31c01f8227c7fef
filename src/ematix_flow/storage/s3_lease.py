"""A publish lock per table among all machines: a lock object, acquired by a conditional write and then renewed.

A holder that stops renewing loses the lock after `SECONDS`. A holder must call `check` right before it commits.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ematix_flow.foundation.errors import FlowError, LeaseHeld, LeaseLost
from ematix_flow.storage.lease import Lease, boot_seconds
from ematix_flow.storage.object_store import ABSENT, put_if
from ematix_flow.storage.s3_path import S3Path

SECONDS = 30.0
"""Seconds after which the lock of a holder that stopped renewing expires."""
PATIENCE_SECONDS = 900.0
_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8)


class _LockObject:
    """The lock object, as one holder writes it."""

    def __init__(self, path: S3Path) -> None:
        self._path = path
        self._owner = uuid.uuid4().hex
        self._tag = ABSENT
        self._writes = 0

    def acquire(self, seconds: float) -> float:
        """Wait for the lock and return when it was acquired; raise `LeaseHeld` after `PATIENCE_SECONDS`."""
        until, tries = time.monotonic() + PATIENCE_SECONDS, 0
        while True:
            requested_at = boot_seconds()
            if self._try_acquire(seconds):
                return requested_at
            if time.monotonic() > until:
                raise LeaseHeld(
                    f"another run holds {self._path} for more than {PATIENCE_SECONDS:.0f} s",
                    hint="run it again when that one is over",
                )
            time.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
            tries += 1

    def _try_acquire(self, seconds: float) -> bool:
        stored = self._path.bucket.get(self._path.key)
        if stored is not None and not _is_free(stored.body) and stored.age <= seconds:
            return False
        self._tag = stored.tag if stored is not None else ABSENT
        return self.write()

    def write(self, *, free: bool = False) -> bool:
        """Write the object unless another holder did; each text differs, so that each version has its own ETag."""
        self._writes += 1
        body = {"owner": self._owner, "renewals": self._writes, "free": free}
        tag = put_if(self._path.bucket, self._path.key, json.dumps(body).encode(), match=self._tag)
        self._tag = tag or self._tag
        return tag is not None


def _is_free(body: bytes) -> bool:
    try:
        return bool(json.loads(body).get("free"))
    except (ValueError, AttributeError):  # not in our format: it expires like the lock of any holder
        return False


@contextmanager
def hold_lease(path: S3Path, *, seconds: float = SECONDS) -> Iterator[Lease]:
    """Hold the lock inside."""
    lock = _LockObject(path)

    def lost() -> LeaseLost:
        return LeaseLost(
            f"this process was silent for so long that its lock {path} was given up; nothing was loaded",
            hint="run it again",
        )

    lease = Lease(lock.write, every=seconds / 4, lost=lost, since=lock.acquire(seconds))
    try:
        with lease.kept():
            yield lease
    finally:
        if not lease.is_lost:
            with suppress(FlowError):  # it expires by itself
                lock.write(free=True)
