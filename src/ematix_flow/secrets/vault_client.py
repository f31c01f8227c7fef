"""The part of HashiCorp Vault's HTTP API that reading a secret needs: tokens, AppRole, KV versions 1 and 2."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ematix_flow.foundation.errors import ConfigError
from ematix_flow.foundation.http import user_agent
from ematix_flow.foundation.redact import remember_secret

SECONDS = 10


class VaultRefused(Exception):
    """Vault returned an error; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class VaultSilent(Exception):
    """Vault did not respond."""


class VaultClient:
    """A client that reads secrets; it logs in on first use, and once more when its token has expired."""

    def __init__(self, address: str, *, token: str | None = None, role_id: str | None = None,
                 secret_id: str | None = None, namespace: str | None = None, ca_file: str | None = None,
                 approle_mount: str = "approle", timeout: float = SECONDS) -> None:  # fmt: skip
        if not address.startswith(("http://", "https://")):
            raise ConfigError("Vault's address begins with https://", hint='address = "https://vault:8200"')
        if not token and not (role_id and secret_id):
            raise ConfigError(
                "Vault needs a login", hint="set VAULT_TOKEN, or token = …, or role_id = … and secret_id = …"
            )
        for secret in (token, secret_id):
            remember_secret(secret)
        self.address = address.rstrip("/")
        self._token = token
        self._role = (role_id, secret_id) if role_id and secret_id else None
        self._mount = approle_mount
        self._namespace = namespace
        self._timeout = timeout
        self._context = ssl.create_default_context(cafile=ca_file) if address.startswith("https") else None
        self._lock = threading.Lock()

    def read(self, path: str, *, mount_point: str, version: int = 2) -> Mapping[str, Any]:
        """Return the keys and values of a secret in a KV engine."""
        middle = "data/" if version == 2 else ""
        where = f"/v1/{quote(mount_point.strip('/'))}/{middle}{quote(path.strip('/'))}"
        try:
            answer = self._request("GET", where)
        except VaultRefused as refusal:
            if refusal.status != 403 or self._role is None:
                raise
            self._token = None  # it may have expired
            answer = self._request("GET", where)
        data = answer.get("data") or {}
        data = (data.get("data") if version == 2 else data) or {}
        return data if isinstance(data, Mapping) else {}

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, login: bool = True) -> Any:
        headers = {"User-Agent": user_agent(), "X-Vault-Request": "true"}
        if login:
            headers["X-Vault-Token"] = self._logged_in()
        if self._namespace:
            headers["X-Vault-Namespace"] = self._namespace
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.address + path, data=data, headers=headers, method=method)  # noqa: S310 - checked above
        try:
            with urllib.request.urlopen(request, timeout=self._timeout, context=self._context) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise VaultRefused(error.code, _errors(error)) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise VaultSilent(str(getattr(error, "reason", None) or error)) from None

    def _logged_in(self) -> str:
        with self._lock:
            if self._token is None and self._role is not None:
                role_id, secret_id = self._role
                login = {"role_id": role_id, "secret_id": secret_id}
                answer = self._request("POST", f"/v1/auth/{quote(self._mount)}/login", login, login=False)
                self._token = str(answer["auth"]["client_token"])
                remember_secret(self._token)
            return self._token or ""


def from_environment(fields: Mapping[str, str]) -> VaultClient:
    """Return a client from settings, completed from VAULT_ADDR, VAULT_TOKEN and the other VAULT_ variables."""

    def setting(name: str, variable: str) -> str | None:
        return fields.get(name) or os.environ.get(variable) or None

    address = setting("address", "VAULT_ADDR")
    if address is None:
        raise ConfigError("Vault's address is not known", hint="set VAULT_ADDR, or address = … below [secrets.vault]")
    role_id, secret_id = setting("role_id", "VAULT_ROLE_ID"), setting("secret_id", "VAULT_SECRET_ID")
    token = fields.get("token") or (None if role_id and secret_id else os.environ.get("VAULT_TOKEN") or _token_file())
    return VaultClient(
        address,
        token=token,
        role_id=role_id,
        secret_id=secret_id,
        namespace=setting("namespace", "VAULT_NAMESPACE"),
        ca_file=setting("ca_file", "VAULT_CACERT"),
    )


def _token_file() -> str | None:
    """Return the token that `vault login` stored; None if there is none."""
    try:
        return (Path.home() / ".vault-token").read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _errors(error: urllib.error.HTTPError) -> str:
    try:
        errors = json.loads(error.read(65536)).get("errors") or []
    except (ValueError, AttributeError, OSError):
        errors = []
    return "; ".join(str(item) for item in errors) or str(error.reason)
