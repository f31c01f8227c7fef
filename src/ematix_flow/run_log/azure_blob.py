"""The run log in Azure Blob Storage."""

from __future__ import annotations

import os
from typing import Any

from ematix_flow.foundation.errors import ConfigError, ConnectionFailed, PermissionDenied
from ematix_flow.foundation.redact import mask, remember_secret
from ematix_flow.run_log.blob.store import BlobRunLog, run_log_errors
from ematix_flow.run_log.drivers import require_driver
from ematix_flow.storage.azure_objects import AzureObjects
from ematix_flow.storage.object_store import LazyClient

_CREDENTIALS = (
    "give credentials: AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING, "
    "or install azure-identity"
)
_HOW = {"retry_total": 1, "initial_backoff": 0.5, "increment_base": 1, "connection_timeout": 2, "read_timeout": 5}


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
        client = LazyClient(container_client, lambda: _client(container, account_url, credential))
        name, account = client.get().container_name, client.get().account_name
        errors = run_log_errors(f"azureblob://{account}/{name}", f"container {name!r}", _CREDENTIALS)
        super().__init__(AzureObjects(client, errors), prefix=prefix)


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
