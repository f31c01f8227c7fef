"""The run log in the objects of a bucket."""

from __future__ import annotations

from ematix_flow.run_log.blob.claims import BlobClaims
from ematix_flow.run_log.blob.history import BlobHistory
from ematix_flow.run_log.blob.objects import Objects
from ematix_flow.run_log.blob.schedule import BlobSchedule
from ematix_flow.run_log.drivers import ELSEWHERE
from ematix_flow.storage.object_store import Failure, ObjectStore, StoreErrors


class BlobRunLog(BlobHistory, BlobClaims, BlobSchedule):
    """A run log below one prefix of a bucket; each claim, slot and interval is granted by one conditional write."""

    def __init__(self, bucket: ObjectStore, *, prefix: str = "") -> None:
        self._objects = Objects(bucket, prefix)

    def close(self) -> None:
        """Close the connections."""
        self._objects.close()


def run_log_errors(label: str, bucket: str, login_hint: str) -> StoreErrors:
    """Return the translation of errors for a run log in an object store."""
    hints = dict.fromkeys((Failure.NO_BUCKET, Failure.UNREACHABLE, Failure.UNUSABLE), ELSEWHERE)
    return StoreErrors(label, bucket, {**hints, Failure.REFUSED: login_hint}, used_for="the run log")
