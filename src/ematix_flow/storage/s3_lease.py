"""A publish lock per table among all machines: a lock object, acquired by a conditional write and then renewed.

A holder that stops renewing loses the lock after `SECONDS`. A holder must call `check` right before it commits.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ematix_flow.foundation.errors import FlowError, LeaseHeld, LeaseLost
from ematix_flow.storage.s3_bucket import ABSENT, S3ConditionFailed
from ematix_flow.storage.s3_path import S3Path

SECONDS = 30.0
"""Seconds after which the lock of a holder that stopped renewing expires."""
PATIENCE_SECONDS = 900.0
_SAFE = 0.7  # share of that time for which a holder relies on its lock; the rest covers a request in flight
_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8)


class S3Lease:
    """The lock while it is held; a daemon thread renews it."""

    def __init__(self, path: S3Path, seconds: float) -> None:
        self._path = path
        self._seconds = seconds
        self._owner = uuid.uuid4().hex
        self._tag = ""
        self._renewals = 0
        self._renewed_at = 0.0
        self._is_over = threading.Event()
        self._guard = threading.Lock()
        self._is_lost = False

    def check(self) -> None:
        """Raise `LeaseLost` unless the lock is certainly still held."""
        if self._is_lost or time.monotonic() - self._renewed_at > self._seconds * _SAFE:
            raise LeaseLost(
                f"this process was silent for so long that its lock {self._path} was given up; nothing was loaded",
                hint="run it again",
            )

    def acquire(self) -> None:
        """Wait for the lock; raise `LeaseHeld` after `PATIENCE_SECONDS`."""
        until, tries = time.monotonic() + PATIENCE_SECONDS, 0
        while not self._try_acquire():
            if time.monotonic() > until:
                raise LeaseHeld(
                    f"another run holds {self._path} for more than {PATIENCE_SECONDS:.0f} s",
                    hint="run it again when that one is over",
                )
            time.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
            tries += 1
        threading.Thread(target=self._renew_until_released, name="lake-lock", daemon=True).start()

    def release(self) -> None:
        """Release the lock; a lost lock belongs to another holder and is left alone."""
        self._is_over.set()
        with self._guard, suppress(FlowError):
            if not self._is_lost:
                self._write(match=self._tag, free=True)

    def _try_acquire(self) -> bool:
        stored = self._path.bucket.get(self._path.key)
        if stored is not None and not _is_free(stored.body) and stored.age <= self._seconds:
            return False
        with self._guard:
            try:
                self._write(match=ABSENT if stored is None else stored.tag)
            except S3ConditionFailed:
                return False
        return True

    def _renew_until_released(self) -> None:
        while not self._is_over.wait(self._seconds / 4):
            with self._guard:
                if self._is_over.is_set():
                    return
                try:
                    self._write(match=self._tag)
                except S3ConditionFailed:
                    self._is_lost = True
                    return
                except FlowError:  # the server may be unreachable for a moment; `check` detects when it lasts too long
                    continue

    def _write(self, *, match: str, free: bool = False) -> None:
        """Write the lock object; each text differs, so that each version has its own ETag."""
        asked_at = time.monotonic()
        self._renewals += 1
        body = {"owner": self._owner, "renewals": self._renewals, "free": free}
        self._tag = self._path.bucket.put(self._path.key, json.dumps(body).encode(), match=match)
        self._renewed_at = asked_at


def _is_free(body: bytes) -> bool:
    try:
        return bool(json.loads(body).get("free"))
    except (ValueError, AttributeError):  # not in our format: it expires like the lock of any holder
        return False


@contextmanager
def hold_lease(path: S3Path, *, seconds: float = SECONDS) -> Iterator[S3Lease]:
    """Hold the lock inside."""
    lease = S3Lease(path, seconds)
    lease.acquire()
    try:
        yield lease
    finally:
        lease.release()
