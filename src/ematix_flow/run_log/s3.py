"""The run log in S3, or in a compatible store with conditional writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ematix_flow.foundation.errors import ConnectionFailed, FlowError, PermissionDenied, Unreachable
from ematix_flow.foundation.redact import mask
from ematix_flow.run_log.blob import ABSENT, Blob, BlobRunLog, LazyClient, ObjectChanged
from ematix_flow.run_log.blob.objects import AT_ONCE
from ematix_flow.run_log.drivers import ELSEWHERE, require_driver

_MISSING = ("NoSuchKey", "404", "NotFound")
_CHANGED = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_REFUSED = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "403")
_BUSY = ("SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "500", "503")
_CREDENTIALS = "give credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role"


class _S3Bucket:
    def __init__(self, bucket: str, client: LazyClient) -> None:
        self._client, self._bucket = client, bucket
        self.label = f"s3://{bucket}"

    def get(self, key: str) -> Blob | None:
        try:
            with self._translated():
                answer = self._client.get().get_object(Bucket=self._bucket, Key=key)
                return Blob(answer["Body"].read(), answer["ETag"])
        except _KeyMissing:
            return None

    def put(self, key: str, body: bytes, *, match: str | None = None) -> None:
        condition = {} if match is None else {"IfNoneMatch": "*"} if match == ABSENT else {"IfMatch": match}
        try:
            with self._translated():
                self._client.get().put_object(
                    Bucket=self._bucket, Key=key, Body=body, ContentType="application/json", **condition
                )
        except _KeyMissing:  # the object to be matched has been deleted
            raise ObjectChanged(key) from None

    def keys(self, prefix: str, *, page: int = 1000) -> Iterator[str]:
        with self._translated():
            for answer in self._pages(prefix, PaginationConfig={"PageSize": page}):
                yield from (item["Key"] for item in answer.get("Contents", ()))

    def folders(self, prefix: str) -> list[str]:
        with self._translated():
            pages = list(self._pages(prefix, Delimiter="/"))
        return [item["Prefix"] for answer in pages for item in answer.get("CommonPrefixes", ())]

    def delete(self, key: str) -> None:
        with self._translated():
            self._client.get().delete_object(Bucket=self._bucket, Key=key)

    def close(self) -> None:
        self._client.close()

    def _pages(self, prefix: str, **options: Any) -> Any:
        paginator = self._client.get().get_paginator("list_objects_v2")
        return paginator.paginate(Bucket=self._bucket, Prefix=prefix, **options)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

        try:
            yield
        except ClientError as error:
            raise self._to_error(error) from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise PermissionDenied(f"the run log {self.label}: {mask(str(error))}", hint=_CREDENTIALS) from error
        except BotoCoreError as error:
            raise Unreachable(
                f"the run log {self.label} cannot be reached: {mask(str(error))}", hint=ELSEWHERE
            ) from error

    def _to_error(self, error: Any) -> Exception:
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = str(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))
        message = mask(str(error))
        if code in _MISSING:
            return _KeyMissing()
        if code in _CHANGED or status == "412":
            return ObjectChanged(code)
        if code in _REFUSED or status == "403":
            return PermissionDenied(f"the run log {self.label} refused: {message}", hint=_CREDENTIALS)
        if code in _BUSY:
            return Unreachable(f"the run log {self.label} is busy: {message}", hint="try again in a moment")
        if code == "NoSuchBucket":
            return ConnectionFailed(f"there is no bucket {self._bucket!r} for the run log", hint=ELSEWHERE)
        return ConnectionFailed(f"the run log {self.label} cannot be used: {message}", hint=ELSEWHERE)


class _KeyMissing(FlowError):
    """The object does not exist."""

    def __init__(self) -> None:
        super().__init__("the object is not there")


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
        kept = LazyClient(client, lambda: _client(region, endpoint))
        super().__init__(_S3Bucket(bucket, kept), prefix=prefix)


def _client(region: str | None, endpoint: str | None) -> Any:
    boto3 = require_driver("boto3", package="boto3", extra="runlog-s3")
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    settings = Config(
        connect_timeout=2,
        read_timeout=5,
        retries={"total_max_attempts": 2, "mode": "standard"},
        max_pool_connections=AT_ONCE,
        # Some S3-compatible servers do not support the checksums that newer clients add.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        **({"s3": {"addressing_style": "path"}} if endpoint else {}),
    )
    try:
        session = boto3.session.Session()  # a new session: the library's default one caches the first credentials
        where = region or session.region_name or "us-east-1"
        return session.client("s3", region_name=where, endpoint_url=endpoint, config=settings)
    except (BotoCoreError, ValueError) as error:
        raise ConnectionFailed(f"the run log on S3 cannot be opened: {mask(str(error))}", hint=ELSEWHERE) from error
