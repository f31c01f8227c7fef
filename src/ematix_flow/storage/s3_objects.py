"""The objects of a bucket on S3, or on a compatible server that supports conditional writes, through boto3."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

from ematix_flow.foundation.errors import ConnectionFailed
from ematix_flow.foundation.redact import mask
from ematix_flow.storage.object_store import (
    ABSENT,
    AT_ONCE,
    ConditionFailed,
    Failure,
    ListedObject,
    ObjectMissing,
    StoredObject,
    StoreErrors,
)

_MOST_DELETED = 1000
_FAILURES = {
    Failure.MISSING: ("NoSuchKey", "404", "NotFound"),
    Failure.CHANGED: ("PreconditionFailed", "ConditionalRequestConflict", "412", "409"),
    Failure.REFUSED: (
        "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "403",
    ),
    Failure.NO_BUCKET: ("NoSuchBucket",),
    Failure.FULL: ("QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "507"),
    Failure.BUSY: ("SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "500", "503"),
}  # fmt: skip
_BY_CODE = {code: failure for failure, codes in _FAILURES.items() for code in codes}
_BY_STATUS = {412: Failure.CHANGED, 403: Failure.REFUSED}


@dataclass(frozen=True)
class S3Object(StoredObject):
    """One object, and its age in seconds by the server's clock."""

    age: float


class S3Objects(ABC):
    """The objects of one bucket, as an `ObjectStore`; a subclass provides the client."""

    name: str
    content_type = "binary/octet-stream"

    @property
    @abstractmethod
    def errors(self) -> StoreErrors:
        """Return the translation of errors."""

    @property
    @abstractmethod
    def _client(self) -> Any:
        """Return the client of boto3."""

    @property
    def label(self) -> str:
        """Return the bucket's address, without credentials."""
        return f"s3://{self.name}"

    def get(self, key: str) -> S3Object | None:
        """Return an object; None if it does not exist."""
        try:
            with self._translated(key):
                answer = self._client.get_object(Bucket=self.name, Key=key)
                body: bytes = answer["Body"].read()
        except ObjectMissing:
            return None
        date = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
        clock = parsedate_to_datetime(date) if date else datetime.now(timezone.utc)
        return S3Object(body, answer["ETag"], (clock - answer["LastModified"]).total_seconds())

    def put(self, key: str, body: bytes, *, match: str | None = None) -> str:
        condition = {} if match is None else {"IfNoneMatch": "*"} if match == ABSENT else {"IfMatch": match}
        try:
            with self._translated(key):
                answer = self._client.put_object(
                    Bucket=self.name, Key=key, Body=body, ContentType=self.content_type, **condition
                )
        except ObjectMissing:  # the object to match has been deleted
            raise ConditionFailed(f"{self.label}/{key}") from None
        return str(answer["ETag"])

    def listed(self, prefix: str, *, after: str | None = None, page: int = 1000) -> Iterator[ListedObject]:
        """Yield the objects below a prefix, ordered by key, from behind `after`; folder markers are left out."""
        start = {"StartAfter": after} if after else {}
        with self._translated(prefix):
            for answer in self._pages(Prefix=prefix, PaginationConfig={"PageSize": page}, **start):
                yield from _objects(answer)

    def children(self, prefix: str) -> tuple[Sequence[str], Sequence[ListedObject]]:
        with self._translated(prefix):
            pages = list(self._pages(Prefix=prefix, Delimiter="/"))
        folders = [item["Prefix"].rstrip("/") for answer in pages for item in answer.get("CommonPrefixes", ())]
        return folders, [item for answer in pages for item in _objects(answer)]

    def delete(self, keys: Iterable[str]) -> None:
        todo = list(keys)
        for start in range(0, len(todo), _MOST_DELETED):
            some = [{"Key": key} for key in todo[start : start + _MOST_DELETED]]
            with self._translated(todo[start]):
                answer = self._client.delete_objects(Bucket=self.name, Delete={"Objects": some, "Quiet": True})
            for error in answer.get("Errors", ()):
                failure = _BY_CODE.get(str(error.get("Code")), Failure.UNUSABLE)
                if failure is not Failure.MISSING:
                    message = mask(
                        f"it does not delete {error.get('Key')}: {error.get('Message') or error.get('Code')}"
                    )
                    raise self.errors.error(failure, str(error.get("Key")), message)

    def _pages(self, **options: Any) -> Any:
        return self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name, **options)

    def _translated(self, key: str) -> AbstractContextManager[None]:
        return self.errors.translated(_failure_of, key)


def _objects(page: Any) -> Iterator[ListedObject]:
    for item in page.get("Contents", ()):
        if not item["Key"].endswith("/"):
            yield ListedObject(item["Key"], item["Size"], item["ETag"], item["LastModified"])


def _failure_of(error: Exception) -> Failure | None:
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

    if isinstance(error, ClientError):
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return _BY_CODE.get(code) or _BY_STATUS.get(status) or Failure.UNUSABLE
    if isinstance(error, (NoCredentialsError, PartialCredentialsError)):
        return Failure.REFUSED
    return Failure.UNREACHABLE if isinstance(error, BotoCoreError) else None


def open_s3_client(
    *, endpoint: str | None, region: str | None, seconds: tuple[float, float], attempts: int, hint: str, **login: str
) -> Any:
    """Return a client of boto3, which looks for credentials and region itself unless they are given.

    `seconds` are the timeouts to connect and to read.
    """
    from boto3.session import Session
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    settings = Config(
        connect_timeout=seconds[0],
        read_timeout=seconds[1],
        retries={"total_max_attempts": attempts, "mode": "standard"},
        max_pool_connections=AT_ONCE,
        # Some S3-compatible servers do not support the checksums that newer clients add.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        **({"s3": {"addressing_style": "path"}} if endpoint else {}),
    )
    try:
        session = Session()  # a new session: the library's default one caches the first credentials
        where = region or session.region_name or "us-east-1"
        return session.client("s3", region_name=where, endpoint_url=endpoint, config=settings, **login)
    except (BotoCoreError, ValueError) as error:
        raise ConnectionFailed(f"S3 cannot be used: {mask(str(error))}", hint=hint) from error
