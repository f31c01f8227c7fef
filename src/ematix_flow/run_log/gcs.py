"""The run log in Google Cloud Storage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ematix_flow.foundation.errors import ConnectionFailed, PermissionDenied, Unreachable
from ematix_flow.foundation.redact import mask
from ematix_flow.run_log.blob import ABSENT, Blob, BlobRunLog, LazyClient, ObjectChanged
from ematix_flow.run_log.drivers import CONNECT_SECONDS, ELSEWHERE, require_driver

_TIMEOUT = (3, 5)
_CREDENTIALS = "give credentials: GOOGLE_APPLICATION_CREDENTIALS, or: gcloud auth application-default login"


class _GcsBucket:
    def __init__(self, bucket: str, client: LazyClient) -> None:
        self._client, self._name = client, bucket
        self.label = f"gcs://{bucket}"
        self._how = _request_options()

    def get(self, key: str) -> Blob | None:
        from google.api_core.exceptions import NotFound

        blob = self._bucket().blob(key)
        with self._translated():
            try:
                body = blob.download_as_bytes(**self._how)
            except NotFound:
                return None
        return Blob(body, str(blob.generation))

    def put(self, key: str, body: bytes, *, match: str | None = None) -> None:
        from google.api_core.exceptions import NotFound

        condition = {} if match is None else {"if_generation_match": 0 if match == ABSENT else int(match)}
        with self._translated():
            try:
                self._bucket().blob(key).upload_from_string(
                    body, content_type="application/json", **condition, **self._how
                )
            except NotFound:
                if match in (None, ABSENT):
                    raise
                raise ObjectChanged(key) from None

    def keys(self, prefix: str, *, page: int = 1000) -> Iterator[str]:
        with self._translated():
            blobs = self._bucket().list_blobs(
                prefix=prefix, page_size=page, fields="items(name),nextPageToken", **self._how
            )
            yield from (blob.name for blob in blobs)

    def folders(self, prefix: str) -> list[str]:
        with self._translated():
            blobs = self._bucket().list_blobs(prefix=prefix, delimiter="/", **self._how)
            for _ in blobs:  # the folders are complete only after the last page
                pass
            return sorted(blobs.prefixes)

    def delete(self, key: str) -> None:
        from google.api_core.exceptions import NotFound

        with self._translated():
            try:
                self._bucket().blob(key).delete(**self._how)
            except NotFound:
                return

    def close(self) -> None:
        self._client.close()

    def _bucket(self) -> Any:
        return self._client.get().bucket(self._name)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from google.api_core import exceptions as api
        from google.auth.exceptions import GoogleAuthError
        from requests.exceptions import RequestException

        try:
            yield
        except api.PreconditionFailed as error:
            raise ObjectChanged(str(error)) from error
        except (api.Forbidden, api.Unauthorized, GoogleAuthError) as error:
            what = f"the run log {self.label} refused: {mask(str(error))}"
            raise PermissionDenied(what, hint=_CREDENTIALS) from error
        except api.NotFound as error:
            raise ConnectionFailed(f"there is no bucket {self._name!r} for the run log", hint=ELSEWHERE) from error
        except (api.RetryError, api.ServerError, api.TooManyRequests, RequestException) as error:
            what = f"the run log {self.label} cannot be reached: {mask(_cause(error))}"
            raise Unreachable(what, hint=ELSEWHERE) from error
        except api.GoogleAPIError as error:
            what = f"the run log {self.label} cannot be used: {mask(str(error))}"
            raise ConnectionFailed(what, hint=ELSEWHERE) from error


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
        storage_client = getattr(bucket_client, "client", None)
        kept = LazyClient(storage_client, lambda: _client(bucket, project, credentials, endpoint))
        super().__init__(_GcsBucket(bucket, kept), prefix=prefix)


def _client(bucket: str, project: str | None, credentials: Any, endpoint: str | None) -> Any:
    storage = require_driver("google.cloud.storage", package="google-cloud-storage", extra="runlog-gcs")
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


def _request_options() -> dict[str, Any]:
    """Return short timeouts and retries; retried writes are safe, as a conditional one recognises its own first try."""
    retry = require_driver("google.cloud.storage.retry", package="google-cloud-storage", extra="runlog-gcs")
    return {"retry": retry.DEFAULT_RETRY.with_timeout(CONNECT_SECONDS), "timeout": _TIMEOUT}


def _cause(error: BaseException) -> str:
    """Return the error behind the last of several attempts."""
    inner = getattr(error, "cause", None) or error.__cause__ or error
    return str(inner)
