"""Secrets in Google Secret Manager: `${gcp:db-password}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ematix_flow.foundation.packages import require_package
from ematix_flow.secrets.store_answers import secret_absent, split_reference, store_unreachable

STORE = "Google Secret Manager"
_SECONDS = 10.0
_REFUSED = ("PermissionDenied", "Forbidden", "Unauthenticated", "Unauthorized")


class GCPSecretManagerResolver:
    """A resolver of `name[#version]` of a project, or of a full resource name. The client is Google's."""

    def __init__(self, client: Any, project: str | None = None) -> None:
        self._client = client
        self._project = project

    def resolve(self, reference: str) -> str:
        """Return the named version of the secret, by default the newest."""
        name, version = split_reference(reference)
        shown = f"gcp:{reference}"
        resource = self._resource(name, version, shown)
        try:
            answer = self._asked(resource)
        except Exception as error:
            raise _translated(error, shown, name) from None
        data = answer.payload.data
        return data if isinstance(data, str) else bytes(data).decode()

    def _asked(self, resource: str) -> Any:
        try:
            return self._client.access_secret_version(request={"name": resource}, timeout=_SECONDS)
        except TypeError:  # a client whose method has no timeout parameter
            return self._client.access_secret_version(request={"name": resource})

    def _resource(self, name: str, version: str | None, shown: str) -> str:
        if name.startswith("projects/"):
            return name if "/versions/" in name else f"{name}/versions/{version or 'latest'}"
        if not name:
            raise secret_absent(shown, STORE, "it names no secret", hint="write ${gcp:name}")
        if not self._project:
            raise secret_absent(
                shown, STORE, "the project is not known", hint="set [secrets.gcp] project, or write projects/P/secrets/NAME"
            )  # fmt: skip
        return f"projects/{self._project}/secrets/{name}/versions/{version or 'latest'}"


def from_settings(fields: Mapping[str, str]) -> GCPSecretManagerResolver:
    """Return a resolver with Google's default login; `project`, `credentials_path` and `endpoint` are optional."""
    manager = require_package("google.cloud.secretmanager", what="${gcp:…}", extra="secrets-gcp")
    credentials, project = _login(fields)
    endpoint = fields.get("endpoint")
    if endpoint:
        scheme, _, host = endpoint.partition("://") if "://" in endpoint else ("https", "", endpoint)
        rest = require_package("google.cloud.secretmanager_v1.services.secret_manager_service.transports.rest", what="${gcp:…}", extra="secrets-gcp")  # fmt: skip
        transport = rest.SecretManagerServiceRestTransport(host=host, credentials=credentials, url_scheme=scheme)
        client = manager.SecretManagerServiceClient(transport=transport)
    else:
        client = manager.SecretManagerServiceClient(credentials=credentials, transport="rest")
    return GCPSecretManagerResolver(client, fields.get("project") or project)


def _login(fields: Mapping[str, str]) -> tuple[Any, str | None]:
    if fields.get("anonymous") == "true":
        return require_package(
            "google.auth.credentials", what="${gcp:…}", extra="secrets-gcp"
        ).AnonymousCredentials(), None
    path = fields.get("credentials_path")
    if path:
        account = require_package("google.oauth2.service_account", what="${gcp:…}", extra="secrets-gcp")
        credentials = account.Credentials.from_service_account_file(path)
        return credentials, getattr(credentials, "project_id", None)
    google = require_package("google.auth", what="${gcp:…}", extra="secrets-gcp")
    credentials, project = google.default()
    return credentials, project


def _translated(error: Exception, shown: str, name: str) -> Exception:
    kind = type(error).__name__
    if kind == "NotFound":
        return secret_absent(shown, STORE, "there is no such secret or version", hint="gcloud secrets list")
    if kind in _REFUSED:
        return secret_absent(
            shown, STORE, f"the login may not read it ({kind})", hint=f"grant roles/secretmanager.secretAccessor on {name}"
        )  # fmt: skip
    return store_unreachable(shown, STORE, kind, hint="check the network and the login")
