"""The run log in S3, or in a compatible store with conditional writes."""

from __future__ import annotations

from typing import Any

from ematix_flow.run_log.blob.store import BlobRunLog, run_log_errors
from ematix_flow.run_log.drivers import ELSEWHERE, require_driver
from ematix_flow.storage.object_store import LazyClient, StoreErrors
from ematix_flow.storage.s3_objects import S3Objects, open_s3_client

_CREDENTIALS = "give credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role"


class _RunLogBucket(S3Objects):
    content_type = "application/json"

    def __init__(self, name: str, client: LazyClient) -> None:
        self.name = name
        self._opened = client

    @property
    def errors(self) -> StoreErrors:
        return run_log_errors(self.label, f"bucket {self.name!r}", _CREDENTIALS)

    @property
    def _client(self) -> Any:
        return self._opened.get()

    def close(self) -> None:
        self._opened.close()


class S3RunLog(BlobRunLog):
    """A run log below a prefix of a bucket; without a given client, boto3 determines region and credentials."""

    def __init__(
        self,
        bucket: str,
        *,
        prefix: str = "",
        client: Any = None,
        region: str | None = None,
        endpoint: str | None = None,
    ) -> None:
        opened = LazyClient(client, lambda: _client(region, endpoint))
        super().__init__(_RunLogBucket(bucket, opened), prefix=prefix)


def _client(region: str | None, endpoint: str | None) -> Any:
    require_driver("boto3", package="boto3", extra="runlog-s3")
    return open_s3_client(endpoint=endpoint, region=region, seconds=(2, 5), attempts=2, hint=ELSEWHERE)
