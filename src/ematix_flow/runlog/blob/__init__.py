"""The run log as objects of a bucket: the part that all object stores share."""

from ematix_flow.runlog.blob.bucket import ABSENT, Blob, Bucket, Changed, Client
from ematix_flow.runlog.blob.store import BlobRunLog

__all__ = ["ABSENT", "Blob", "BlobRunLog", "Bucket", "Changed", "Client"]
