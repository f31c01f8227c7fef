"""The run log in Azure Blob Storage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ematix_flow.foundation.errors import ConfigError, ConnectionFailed, PermissionDenied, Unreachable
from ematix_flow.foundation.redact import mask, remember_secret
from ematix_flow.run_log.blob import ABSENT, Blob, BlobRunLog, LazyClient, ObjectChanged
from ematix_flow.run_log.drivers import ELSEWHERE, require_driver

_CREDENTIALS = (
    "give credentials: AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING, "
    "or install azure-identity"
)
_HOW = {"retry_total": 1, "initial_backoff": 0.5, "increment_base": 1, "connection_timeout": 2, "read_timeout": 5}


class _AzureContainer:
    def __init__(self, client: LazyClient) -> None:
        self._client = client
        self._name = client.get().container_name
        self.label = f"azureblob://{client.get().account_name}/{self._name}"

    def get(self, key: str) -> Blob | None:
        from azure.core.exceptions import ResourceNotFoundError

        with self._translated():
            try:
                answer = self._client.get().download_blob(key)
                return Blob(answer.readall(), answer.properties.etag)
            except ResourceNotFoundError:
                return None

    def put(self, key: str, body: bytes, *, match: str | None = None) -> None:
        from azure.core import MatchConditions

        condition = {"etag": match, "match_condition": MatchConditions.IfNotModified} if match else {}
        with self._translated():
            self._client.get().upload_blob(key, body, overwrite=match != ABSENT, **condition)

    def keys(self, prefix: str, *, page: int = 1000) -> Iterator[str]:
        with self._translated():
            yield from self._client.get().list_blob_names(name_starts_with=prefix, results_per_page=page)

    def folders(self, prefix: str) -> list[str]:
        with self._translated():
            items = self._client.get().walk_blobs(name_starts_with=prefix, delimiter="/")
            return [item.name for item in items if item.name.endswith("/")]

    def delete(self, key: str) -> None:
        from azure.core.exceptions import ResourceNotFoundError

        with self._translated():
            try:
                self._client.get().delete_blob(key)
            except ResourceNotFoundError:
                return

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from azure.core import exceptions as azure

        try:
            yield
        except (azure.ResourceExistsError, azure.ResourceModifiedError) as error:
            raise ObjectChanged(str(error)) from error
        except azure.ResourceNotFoundError as error:
            what = f"there is no container {self._name!r} for the run log"
            raise ConnectionFailed(what, hint=ELSEWHERE) from error
        except azure.HttpResponseError as error:
            if isinstance(error, azure.ClientAuthenticationError) or error.status_code in (401, 403):
                what = f"the run log {self.label} refused: {_first_line(error)}"
                raise PermissionDenied(what, hint=_CREDENTIALS) from error
            kind = Unreachable if (error.status_code or 0) >= 500 else ConnectionFailed
            raise kind(f"the run log {self.label} cannot be used: {_first_line(error)}", hint=ELSEWHERE) from error
        except azure.AzureError as error:
            what = f"the run log {self.label} cannot be reached: {_first_line(error)}"
            raise Unreachable(what, hint=ELSEWHERE) from error


class AzureBlobRunLog(BlobRunLog):
    """A run log below a prefix of a container; credentials come from the environment unless they are given."""

    def __init__(
        self,
        container: str,
        *,
        account_url: str | None = None,
        prefix: str = "",
        credential: Any = None,
        container_client: Any = None,
    ) -> None:
        kept = LazyClient(container_client, lambda: _client(container, account_url, credential))
        super().__init__(_AzureContainer(kept), prefix=prefix)


def _client(container: str, account_url: str | None, credential: Any) -> Any:
    blob = require_driver("azure.storage.blob", package="azure-storage-blob", extra="runlog-azure")
    text = os.environ.get("AZURE_STORAGE_CONNECTION_STRING")
    try:
        if credential is None and text and account_url is None:
            remember_secret(text)
            return blob.ContainerClient.from_connection_string(text, container, **_HOW)
        if account_url is None:
            raise ConfigError("a run log on Azure needs an account", hint="write azureblob://account/container/prefix")
        known = credential or _credential(account_url)
        return blob.ContainerClient(account_url, container, credential=known, **_HOW)
    except ValueError as error:
        if isinstance(error, (ConfigError, ConnectionFailed)):
            raise
        raise ConfigError(f"the run log on Azure cannot be opened: {mask(str(error))}", hint=_CREDENTIALS) from error


def _credential(account_url: str) -> Any:
    """Return the account key or SAS token from the environment, else the default Azure identity of this machine."""
    for variable in ("AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"):
        value = os.environ.get(variable)
        if value:
            remember_secret(value)
            return value
    try:
        from azure.identity import DefaultAzureCredential
    except ImportError:
        raise PermissionDenied(f"nothing says who may open the run log {account_url}", hint=_CREDENTIALS) from None
    return DefaultAzureCredential()


def _first_line(error: BaseException) -> str:
    return mask(str(error).strip().partition("\n")[0])
