"""One bucket with its credentials: objects are read, listed, copied, deleted and written conditionally."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ematix_flow.declare.connections.lakes import BucketConnection
from ematix_flow.foundation.errors import (
    ConnectionFailed,
    FlowError,
    MissingDriver,
    PermissionDenied,
    StorageFull,
    Unreachable,
)
from ematix_flow.foundation.redact import mask

ABSENT = "*"
"""The condition that no object exists yet."""
AT_ONCE = 16
_LARGEST_COPY = 5 * 1024**3  # the limit of one copy request
_AMAZON = ".amazonaws.com"
_MOST_DELETED = 1000
_MISSING = ("NoSuchKey", "404", "NotFound")
_CHANGED = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_REFUSED = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "403")
_BUSY = ("SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "500", "503")
_FULL = ("QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "507")
_T = TypeVar("_T")
_R = TypeVar("_R")


class S3ConditionFailed(FlowError):
    """The condition of a write does not hold: another process changed the object first."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} was changed by somebody else", hint="run it again")


class _ObjectMissing(FlowError):
    """The object does not exist."""


@dataclass(frozen=True)
class S3Object:
    """One object: its content, its version, and its age in seconds by the server's clock."""

    body: bytes
    tag: str
    age: float


@dataclass(frozen=True)
class ListedObject:
    """One object of a listing."""

    key: str
    size: int
    tag: str
    modified: datetime


@dataclass(frozen=True)
class S3Bucket:
    """A bucket on S3, or on a compatible server that supports conditional writes."""

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

    def get(self, key: str) -> S3Object | None:
        """Return an object; None when it does not exist."""
        try:
            with self._translated_errors(key):
                answer = self._client.get_object(Bucket=self.name, Key=key)
                body: bytes = answer["Body"].read()
        except _ObjectMissing:
            return None
        date = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
        clock = parsedate_to_datetime(date) if date else datetime.now(timezone.utc)
        return S3Object(body, answer["ETag"], (clock - answer["LastModified"]).total_seconds())

    def put(self, key: str, body: bytes, *, match: str | None = None) -> str:
        """Write an object and return its new ETag; with `match`, raise `Changed` if the condition does not hold."""
        condition = {} if match is None else {"IfNoneMatch": "*"} if match == ABSENT else {"IfMatch": match}
        try:
            with self._translated_errors(key):
                answer = self._client.put_object(Bucket=self.name, Key=key, Body=body, **condition)
        except _ObjectMissing:  # the object to match has been deleted
            raise S3ConditionFailed(key) from None
        return str(answer["ETag"])

    def listed(self, prefix: str, *, after: str | None = None) -> Iterator[ListedObject]:
        """Yield the objects below a prefix, ordered by key; folder markers are left out."""
        start = {"StartAfter": after} if after else {}
        with self._translated_errors(prefix):
            for answer in self._pages(Prefix=prefix, **start):
                for item in answer.get("Contents", ()):
                    if not item["Key"].endswith("/"):
                        yield ListedObject(item["Key"], item["Size"], item["ETag"], item["LastModified"])

    def children(self, prefix: str) -> tuple[Sequence[str], Sequence[ListedObject]]:
        """Return the direct children of a prefix: folders, without their slash, and objects."""
        folders: list[str] = []
        objects: list[ListedObject] = []
        with self._translated_errors(prefix):
            for answer in self._pages(Prefix=prefix, Delimiter="/"):
                folders += [item["Prefix"].rstrip("/") for item in answer.get("CommonPrefixes", ())]
                objects += [
                    ListedObject(item["Key"], item["Size"], item["ETag"], item["LastModified"])
                    for item in answer.get("Contents", ())
                    if not item["Key"].endswith("/")
                ]
        return folders, objects

    def first(self, prefix: str) -> str | None:
        """Return the first key below a prefix, folder markers included; None when there is none."""
        with self._translated_errors(prefix):
            answer = self._client.list_objects_v2(Bucket=self.name, Prefix=prefix, MaxKeys=1)
        return next((str(item["Key"]) for item in answer.get("Contents", ())), None)

    def copy(self, source: ListedObject, key: str) -> None:
        """Copy an object inside the bucket, on the server."""
        origin = {"Bucket": self.name, "Key": source.key}
        with self._translated_errors(source.key):
            if source.size < _LARGEST_COPY:
                self._client.copy_object(Bucket=self.name, Key=key, CopySource=origin)
            else:
                self._client.copy(origin, self.name, key)  # multipart

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; missing ones are no error."""
        todo = list(keys)
        for start in range(0, len(todo), _MOST_DELETED):
            some = [{"Key": key} for key in todo[start : start + _MOST_DELETED]]
            with self._translated_errors(todo[start]):
                answer = self._client.delete_objects(Bucket=self.name, Delete={"Objects": some, "Quiet": True})
            for error in answer.get("Errors", ()):
                if error.get("Code") not in _MISSING:
                    message = mask(f"{error.get('Key')}: {error.get('Message') or error.get('Code')}")
                    raise ConnectionFailed(f"{self.label} does not delete {message}", hint=self._hint)

    def delete_below(self, prefix: str) -> None:
        """Delete everything below a prefix, folder markers included."""
        with self._translated_errors(prefix):
            keys = [item["Key"] for answer in self._pages(Prefix=prefix) for item in answer.get("Contents", ())]
        # Some servers refuse to delete a folder that is not empty, so the deepest come first.
        self.delete(sorted(keys, key=lambda key: (key.endswith("/"), -key.count("/"))))

    def at_once(self, work: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
        """Run a function for many items, some in parallel: a single request has a high latency."""
        todo = list(items)
        if len(todo) < 2:
            return [work(item) for item in todo]
        with ThreadPoolExecutor(min(AT_ONCE, len(todo)), thread_name_prefix="bucket") as pool:
            return list(pool.map(work, todo))

    @property
    def label(self) -> str:
        """Return the bucket's address, without credentials."""
        return f"s3://{self.name}"

    @property
    def _client(self) -> Any:
        own = None if self.is_amazons else self.endpoint
        return _client(own, self.region, self.access_key_id, self.secret_access_key)

    def _pages(self, **what: Any) -> Any:
        return self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name, **what)

    @property
    def _hint(self) -> str:
        return "check access_key_id, secret_access_key and the rights of that login"

    @contextmanager
    def _translated_errors(self, key: str) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            raise self._to_error(error, key) from error
        except BotoCoreError as error:
            raise Unreachable(
                f"{self.label} cannot be reached at {self.endpoint}: {mask(str(error))}",
                hint="check the connection's endpoint and the network",
            ) from error

    def _to_error(self, error: Any, key: str) -> FlowError:
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = str(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))
        message = mask(str(error))
        if code in _MISSING:
            return _ObjectMissing(f"{self.label}/{key} is not there")
        if code in _CHANGED or status == "412":
            return S3ConditionFailed(f"{self.label}/{key}")
        if code in _REFUSED or status == "403":
            return PermissionDenied(f"{self.label} refused: {message}", hint=self._hint)
        if code == "NoSuchBucket":
            return ConnectionFailed(f"there is no bucket {self.name!r} at {self.endpoint}", hint="create the bucket")
        if code in _FULL:
            return StorageFull(f"no space left in {self.label}: {message}", hint="free space there and run again")
        if code in _BUSY:
            return Unreachable(f"{self.label} is busy: {message}", hint="try again in a moment")
        return ConnectionFailed(f"{self.label} cannot be used: {message}", hint=self._hint)


@lru_cache(maxsize=32)
def _client(endpoint: str | None, region: str, access_key_id: str, secret_access_key: str) -> Any:
    """Return a client, shared by all users of these credentials: creating one takes longer than most requests."""
    try:
        import boto3
    except ImportError as error:
        raise MissingDriver(
            "lakes on S3 need the package boto3, which is not installed", hint='pip install "ematix-flow-spark[s3]"'
        ) from error
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    settings = Config(
        connect_timeout=5,
        read_timeout=60,
        retries={"total_max_attempts": 4, "mode": "standard"},
        max_pool_connections=AT_ONCE,
        # Some S3-compatible servers do not support the checksums that newer clients add.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        **({"s3": {"addressing_style": "path"}} if endpoint else {}),
    )
    try:
        return boto3.session.Session().client(
            "s3", region_name=region, endpoint_url=endpoint, aws_access_key_id=access_key_id,
            aws_secret_access_key=secret_access_key, config=settings,
        )  # fmt: skip
    except (BotoCoreError, ValueError) as error:
        raise ConnectionFailed(
            f"the login for S3 cannot be used: {mask(str(error))}", hint="check the endpoint"
        ) from error
