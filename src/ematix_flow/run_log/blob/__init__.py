"""The run log as objects of a bucket: the part that all object stores share."""

from ematix_flow.run_log.blob.bucket import ABSENT, Blob, LazyClient, ObjectChanged, ObjectStore
from ematix_flow.run_log.blob.store import BlobRunLog

__all__ = ["ABSENT", "Blob", "BlobRunLog", "LazyClient", "ObjectChanged", "ObjectStore"]
