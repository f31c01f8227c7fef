"""The run log in the objects of a bucket."""

from __future__ import annotations

from ematix_flow.run_log.blob.bucket import ObjectStore
from ematix_flow.run_log.blob.claims import BlobClaims
from ematix_flow.run_log.blob.history import BlobHistory
from ematix_flow.run_log.blob.objects import Objects
from ematix_flow.run_log.blob.schedule import BlobSchedule


class BlobRunLog(BlobHistory, BlobClaims, BlobSchedule):
    """A run log below one prefix of a bucket; each claim, slot and interval is granted by one conditional write."""

    def __init__(self, bucket: ObjectStore, *, prefix: str = "") -> None:
        self._objects = Objects(bucket, prefix)

    def close(self) -> None:
        """Close the connections."""
        self._objects.close()
