"""The run log in the objects of a bucket."""

from __future__ import annotations

from ematix_flow.runlog.blob.agenda import BlobAgenda
from ematix_flow.runlog.blob.bucket import Bucket
from ematix_flow.runlog.blob.claims import BlobClaims
from ematix_flow.runlog.blob.history import BlobHistory
from ematix_flow.runlog.blob.objects import Objects


class BlobRunLog(BlobHistory, BlobClaims, BlobAgenda):
    """A run log below one prefix of a bucket; each claim, slot and interval is granted by one conditional write."""

    def __init__(self, bucket: Bucket, *, prefix: str = "") -> None:
        self._objects = Objects(bucket, prefix)

    def close(self) -> None:
        """Close the connections."""
        self._objects.close()
