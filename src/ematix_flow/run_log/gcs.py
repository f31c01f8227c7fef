"""The run log in Google Cloud Storage."""

from __future__ import annotations

from typing import Any

from ematix_flow.foundation.errors import PermissionDenied
from ematix_flow.foundation.redact import mask
from ematix_flow.run_log.blob.store import BlobRunLog, run_log_errors
from ematix_flow.run_log.drivers import require_driver
from ematix_flow.storage.gcs_objects import GcsObjects
from ematix_flow.storage.object_store import LazyClient

_CREDENTIALS = "give credentials: GOOGLE_APPLICATION_CREDENTIALS, or: gcloud auth application-default login"


class GcsRunLog(BlobRunLog):
    """A run log below a prefix of a bucket; without given credentials, Google's defaults are used."""

    def __init__(
        self,
        bucket: str,
        *,
        prefix: str = "",
        project: str | None = None,
        credentials: Any = None,
        bucket_client: Any = None,
        endpoint: str | None = None,
    ) -> None:
        storage = require_driver("google.cloud.storage", package="google-cloud-storage", extra="runlog-gcs")
        given = getattr(bucket_client, "client", None)
        client = LazyClient(given, lambda: _client(storage, bucket, project, credentials, endpoint))
        errors = run_log_errors(f"gcs://{bucket}", f"bucket {bucket!r}", _CREDENTIALS)
        super().__init__(GcsObjects(bucket, client, errors, content_type="application/json"), prefix=prefix)


def _client(storage: Any, bucket: str, project: str | None, credentials: Any, endpoint: str | None) -> Any:
    auth = require_driver("google.auth.credentials", package="google-auth", extra="runlog-gcs")
    from google.auth.exceptions import GoogleAuthError

    if credentials is None and endpoint is not None and endpoint.startswith("http://"):
        credentials = auth.AnonymousCredentials()  # an emulator: tokens are never sent over plain HTTP
        project = project or "emulator"
    try:
        return storage.Client(
            project=project,
            credentials=credentials,
            client_options={"api_endpoint": endpoint} if endpoint else None,
        )
    except (GoogleAuthError, OSError) as error:  # the library raises an OSError if no project is configured
        what = f"the run log gcs://{bucket} cannot be opened: {mask(str(error))}"
        raise PermissionDenied(what, hint=_CREDENTIALS) from error
