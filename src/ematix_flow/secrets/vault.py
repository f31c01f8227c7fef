"""Secrets in HashiCorp Vault: `${vault:shop/db#password}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ematix_flow.foundation.redact import mask
from ematix_flow.secrets.store_answers import chosen_value, secret_absent, split_reference, store_unreachable
from ematix_flow.secrets.vault_client import VaultClient, VaultRefused, VaultSilent

STORE = "Vault"


class VaultResolver:
    """A resolver of `path#key` of a KV engine; without a key, of all keys as JSON.

    The client is this package's own `VaultClient`, or one of the package hvac.
    """

    def __init__(self, client: Any, mount_point: str = "secret", *, kv_version: int = 2) -> None:
        self._client = client
        self._mount = mount_point
        self._version = kv_version

    def resolve(self, reference: str) -> str:
        """Return the value of one key, or of all keys as JSON."""
        path, key = split_reference(reference)
        shown = f"vault:{reference}"
        if not path:
            raise secret_absent(shown, STORE, "it names no secret", hint="write ${vault:path#key}")
        return chosen_value(self._read(path, shown), key, reference=shown, store=STORE)

    def _read(self, path: str, shown: str) -> Mapping[str, Any]:
        try:
            if isinstance(self._client, VaultClient):
                return self._client.read(path, mount_point=self._mount, version=self._version)
            return self._read_with_hvac(path)
        except VaultSilent as error:
            raise store_unreachable(shown, STORE, mask(str(error)), hint="check VAULT_ADDR and the network") from None
        except VaultRefused as refusal:
            raise self._refused(refusal.status, shown, mask(str(refusal))) from None
        except Exception as error:
            status = {"InvalidPath": 404, "Forbidden": 403, "VaultDown": 503}.get(type(error).__name__)
            if status is None:
                raise store_unreachable(shown, STORE, type(error).__name__, hint="check the client's address") from None
            raise self._refused(status, shown, type(error).__name__) from None

    def _read_with_hvac(self, path: str) -> Mapping[str, Any]:
        engine = self._client.secrets.kv
        if self._version == 1:
            answer = engine.v1.read_secret(path=path, mount_point=self._mount)
            return dict(answer["data"])
        answer = engine.v2.read_secret_version(path=path, mount_point=self._mount, raise_on_deleted_version=True)
        return dict(answer["data"]["data"])

    def _refused(self, status: int, shown: str, message: str) -> Exception:
        if status == 404:
            return secret_absent(
                shown, STORE, "there is no such secret", hint=f"list them: vault kv list {self._mount}/ (mount {self._mount!r})"
            )  # fmt: skip
        if status in (400, 403):
            return secret_absent(
                shown, STORE, f"the login may not read it ({message})", hint="check the token and its policies"
            )
        return store_unreachable(shown, STORE, f"{status} {message}", hint="vault status")
