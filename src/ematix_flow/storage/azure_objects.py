"""The objects of a container in Azure Blob Storage, through azure-storage-blob."""

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
    ObjectMissing,
    StoredObject,
    StoreErrors,
    in_parallel,
)

_CONTAINER_MISSING = ("ContainerNotFound", "ContainerBeingDeleted")


class AzureObjects:
    """The objects of one container, as an `ObjectStore`."""

    def __init__(self, client: LazyClient, errors: StoreErrors) -> None:
        self._client = client
        self._errors = errors
        self.label = errors.label

    def get(self, key: str) -> StoredObject | None:
        try:
            with self._translated(key):
                answer = self._client.get().download_blob(key)
                return StoredObject(answer.readall(), answer.properties.etag)
        except ObjectMissing:
            return None

    def put(self, key: str, body: bytes, *, match: str | None = None) -> str:
        from azure.core import MatchConditions

        condition = {"etag": match, "match_condition": MatchConditions.IfNotModified} if match else {}
        try:
            with self._translated(key):
                blob = self._client.get().get_blob_client(key)
                return str(blob.upload_blob(body, overwrite=match != ABSENT, **condition)["etag"])
        except ObjectMissing:  # the object to match has been deleted
            raise ConditionFailed(f"{self.label}/{key}") from None

    def listed(self, prefix: str, *, page: int = 1000) -> Iterator[ListedObject]:
        with self._translated(prefix):
            items = self._client.get().list_blobs(name_starts_with=prefix, results_per_page=page)
            yield from map(_listed, items)

    def children(self, prefix: str) -> tuple[Sequence[str], Sequence[ListedObject]]:
        with self._translated(prefix):
            items = list(self._client.get().walk_blobs(name_starts_with=prefix, delimiter="/"))
        folders = [item.name.rstrip("/") for item in items if item.name.endswith("/")]
        return folders, [_listed(item) for item in items if not item.name.endswith("/")]

    def delete(self, keys: Iterable[str]) -> None:
        in_parallel(self._delete, keys)

    def close(self) -> None:
        self._client.close()

    def _delete(self, key: str) -> None:
        try:
            with self._translated(key):
                self._client.get().delete_blob(key)
        except ObjectMissing:
            return

    def _translated(self, key: str) -> AbstractContextManager[None]:
        return self._errors.translated(_failure_of, key)


def _listed(item: Any) -> ListedObject:
    return ListedObject(item.name, item.size, item.etag, item.last_modified)


def _failure_of(error: Exception) -> Failure | None:
    from azure.core import exceptions as azure

    if isinstance(error, (azure.ResourceExistsError, azure.ResourceModifiedError)):
        return Failure.CHANGED
    if isinstance(error, azure.HttpResponseError):
        if isinstance(error, azure.ResourceNotFoundError):
            is_container = getattr(error, "error_code", None) in _CONTAINER_MISSING
            return Failure.NO_BUCKET if is_container else Failure.MISSING
        if isinstance(error, azure.ClientAuthenticationError) or error.status_code in (401, 403):
            return Failure.REFUSED
        return Failure.BUSY if (error.status_code or 0) >= 500 else Failure.UNUSABLE
    return Failure.UNREACHABLE if isinstance(error, azure.AzureError) else None
