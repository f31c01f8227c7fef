"""One bucket with its credentials, as lakes and checkpoints use it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from ematix_flow.declare.connections.lakes import BucketConnection
from ematix_flow.foundation.drivers import require_driver
from ematix_flow.storage.object_store import Failure, ListedObject, StoreErrors
from ematix_flow.storage.s3_objects import S3Objects, open_s3_client

_LARGEST_COPY = 5 * 1024**3  # the limit of one copy request
_AMAZON = ".amazonaws.com"
_CHECK_LOGIN = "check access_key_id, secret_access_key and the rights of that login"
_HINTS = {
    Failure.REFUSED: _CHECK_LOGIN,
    Failure.UNUSABLE: _CHECK_LOGIN,
    Failure.NO_BUCKET: "create the bucket",
    Failure.UNREACHABLE: "check the connection's endpoint and the network",
}


@dataclass(frozen=True)
class S3Bucket(S3Objects):
    """A bucket on S3, or on a compatible server; it can be pickled, so that Spark tasks use it."""

    name: str
    endpoint: str
    region: str
    access_key_id: str
    secret_access_key: str = field(repr=False)

    @classmethod
    def of(cls, connection: BucketConnection) -> S3Bucket:
        """Return the bucket of a connection, which is resolved here."""
        ready = connection.resolved()
        return cls(ready.bucket, ready.endpoint.rstrip("/"), ready.region, ready.access_key_id, ready.secret_access_key)

    @property
    def is_amazons(self) -> bool:
        """Return whether the endpoint is one of Amazon's own, which follow from the region."""
        return (urlsplit(self.endpoint).hostname or "").endswith(_AMAZON)

    @property
    def errors(self) -> StoreErrors:
        """Return the translation of errors."""
        return StoreErrors(self.label, f"bucket {self.name!r}", _HINTS, endpoint=self.endpoint)

    def first(self, prefix: str) -> str | None:
        """Return the first key below a prefix, folder markers included; None when there is none."""
        with self._translated(prefix):
            answer = self._client.list_objects_v2(Bucket=self.name, Prefix=prefix, MaxKeys=1)
        return next((str(item["Key"]) for item in answer.get("Contents", ())), None)

    def copy(self, source: ListedObject, key: str) -> None:
        """Copy an object inside the bucket, on the server."""
        origin = {"Bucket": self.name, "Key": source.key}
        with self._translated(source.key):
            if source.size < _LARGEST_COPY:
                self._client.copy_object(Bucket=self.name, Key=key, CopySource=origin)
            else:
                self._client.copy(origin, self.name, key)  # multipart

    def delete_below(self, prefix: str) -> None:
        """Delete everything below a prefix, folder markers included."""
        with self._translated(prefix):
            keys = [item["Key"] for answer in self._pages(Prefix=prefix) for item in answer.get("Contents", ())]
        # Some servers refuse to delete a folder that is not empty, so the deepest come first.
        self.delete(sorted(keys, key=lambda key: (key.endswith("/"), -key.count("/"))))

    def close(self) -> None:
        """Do nothing: the clients are shared by all users of the same credentials."""

    @property
    def _client(self) -> Any:
        own = None if self.is_amazons else self.endpoint
        return _client(own, self.region, self.access_key_id, self.secret_access_key)


@lru_cache(maxsize=32)
def _client(endpoint: str | None, region: str, access_key_id: str, secret_access_key: str) -> Any:
    """Return a client, shared by all users of these credentials: creating one takes longer than most requests."""
    require_driver("boto3", needed_by="a lake on S3", package="boto3", extra="s3")
    return open_s3_client(
        endpoint=endpoint, region=region, seconds=(5, 60), attempts=4, hint="check the endpoint",
        aws_access_key_id=access_key_id, aws_secret_access_key=secret_access_key,
    )  # fmt: skip
