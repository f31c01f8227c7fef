"""The objects of a bucket in Google Cloud Storage, through google-cloud-storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ematix_flow.storage.object_store import (
    ABSENT,
    ConditionFailed,
    Failure,
    LazyClient,
    ListedObject,
    StoredObject,
    StoreErrors,
    in_parallel,
)

_TIMEOUT = (3, 5)
_RETRY_SECONDS = 5
_LISTED = "name,size,generation,updated"


class GcsObjects:
    """The objects of one bucket, as an `ObjectStore`; the tag of an object is its generation."""

    def __init__(self, name: str, client: LazyClient, errors: StoreErrors, *, content_type: str) -> None:
        self._name = name
        self._client = client
        self._errors = errors
        self._content_type = content_type
        self._options = _request_options()
        self.label = errors.label

    def get(self, key: str) -> StoredObject | None:
        from google.api_core.exceptions import NotFound

        blob = self._bucket().blob(key)
        with self._translated(key):
            try:
                body = blob.download_as_bytes(**self._options)
            except NotFound:
                return None
        return StoredObject(body, str(blob.generation))

    def put(self, key: str, body: bytes, *, match: str | None = None) -> str:
        from google.api_core.exceptions import NotFound

        condition = {} if match is None else {"if_generation_match": 0 if match == ABSENT else int(match)}
        blob = self._bucket().blob(key)
        with self._translated(key):
            try:
                blob.upload_from_string(body, content_type=self._content_type, **condition, **self._options)
            except NotFound:
                if match in (None, ABSENT):
                    raise
                raise ConditionFailed(f"{self.label}/{key}") from None
        return str(blob.generation)

    def listed(self, prefix: str, *, page: int = 1000) -> Iterator[ListedObject]:
        with self._translated(prefix):
            blobs = self._bucket().list_blobs(
                prefix=prefix, page_size=page, fields=f"items({_LISTED}),nextPageToken", **self._options
            )
            yield from map(_listed, blobs)

    def children(self, prefix: str) -> tuple[Sequence[str], Sequence[ListedObject]]:
        with self._translated(prefix):
            blobs = self._bucket().list_blobs(prefix=prefix, delimiter="/", **self._options)
            objects = [_listed(blob) for blob in blobs]
        return sorted(folder.rstrip("/") for folder in blobs.prefixes), objects  # complete after the last page only

    def delete(self, keys: Iterable[str]) -> None:
        in_parallel(self._delete, keys)

    def close(self) -> None:
        self._client.close()

    def _delete(self, key: str) -> None:
        from google.api_core.exceptions import NotFound

        with self._translated(key):
            try:
                self._bucket().blob(key).delete(**self._options)
            except NotFound:
                return

    def _bucket(self) -> Any:
        return self._client.get().bucket(self._name)

    def _translated(self, key: str) -> AbstractContextManager[None]:
        return self._errors.translated(_failure_of, key)


def _listed(blob: Any) -> ListedObject:
    return ListedObject(blob.name, blob.size, str(blob.generation), blob.updated)


def _failure_of(error: Exception) -> Failure | None:
    from google.api_core import exceptions as api
    from google.auth.exceptions import GoogleAuthError
    from requests.exceptions import RequestException

    if isinstance(error, api.PreconditionFailed):
        return Failure.CHANGED
    if isinstance(error, (api.Forbidden, api.Unauthorized, GoogleAuthError)):
        return Failure.REFUSED
    if isinstance(error, api.NotFound):  # of an object: handled where it may be missing
        return Failure.NO_BUCKET
    if isinstance(error, (api.RetryError, api.ServerError, api.TooManyRequests, RequestException)):
        return Failure.UNREACHABLE
    return Failure.UNUSABLE if isinstance(error, api.GoogleAPIError) else None


def _request_options() -> dict[str, Any]:
    """Return short timeouts and retries; retried writes are safe, as a conditional one recognises its own first try."""
    from google.cloud.storage.retry import DEFAULT_RETRY

    return {"retry": DEFAULT_RETRY.with_timeout(_RETRY_SECONDS), "timeout": _TIMEOUT}
