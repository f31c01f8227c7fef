"""The configured secret stores: `[secrets]` of the project's or user's file, and the kinds that need no settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ematix_flow.config import files
from ematix_flow.foundation.errors import ConfigError, located
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.foundation.secrets import SecretResolver, expand
from ematix_flow.secrets.files import FileResolver

TABLE = "secrets"
CACHE_SECONDS = 60.0
_ALIASES = {"aws-sm": "aws", "gcp-sm": "gcp", "hvac": "vault"}
_FIELDS = {
    "vault": ("address", "token", "role_id", "secret_id", "namespace", "ca_file", "mount_point", "kv_version"),
    "aws": ("region", "profile", "endpoint_url"),
    "gcp": ("project", "credentials_path", "endpoint", "anonymous"),
    "file": ("folder",),
}
_COMMON = ("kind", "cache_seconds")


_built: dict[tuple[str, str], SecretResolver] = {}
"""The stores in use, by project and prefix."""


def store_for(prefix: str) -> SecretResolver | None:
    """Return the store of a prefix: a table of that name below `[secrets]`, else a kind without settings; or None."""
    key = (str(files.project_file()), prefix)
    if key not in _built:
        store = _find_store(prefix)
        if store is None:
            return None
        _built[key] = store
    return _built[key]


def forget_stores() -> None:
    """Clear the cached stores; for tests, and after a change of the configuration."""
    _built.clear()


def _find_store(prefix: str) -> SecretResolver | None:
    for file in files.configuration_files():
        table = file.table(TABLE, hint="write [secrets.vault]") or {}
        if prefix in table:
            return _from_file(file, prefix, table[prefix])
    kind = _ALIASES.get(prefix, prefix)
    return _cached_store(kind, _make_store(kind, {}), CACHE_SECONDS) if kind in _FIELDS else None


class _CachingResolver:
    """A cache in front of a store (60 seconds by default): a run resolves a connection several times."""

    def __init__(self, store: SecretResolver, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._seconds = seconds
        self._clock = clock
        self._values: dict[str, tuple[float, str]] = {}

    def resolve(self, reference: str) -> str:
        """Return the value, which is at most the configured seconds old."""
        cached = self._values.get(reference)
        if cached is not None and self._clock() < cached[0]:
            return cached[1]
        value = self._store.resolve(reference)
        self._values[reference] = (self._clock() + self._seconds, value)
        return value


def _from_file(file: files.ConfigFile, prefix: str, entry: Any) -> SecretResolver:
    place = file.place((TABLE, prefix))
    if not isinstance(entry, Mapping):
        raise ConfigError(
            f"{file.shown}: [secrets] {prefix} is not a table", where=place, hint=f"write [secrets.{prefix}]"
        )
    kind = str(entry.get("kind", _ALIASES.get(prefix, prefix)))
    kind = _ALIASES.get(kind, kind)
    if kind not in _FIELDS:
        raise ConfigError(
            f"{file.shown}: no secret store is of kind {kind!r}", where=place, hint=did_you_mean(kind, _FIELDS)
        )
    file.check_keys(entry, (*_FIELDS[kind], *_COMMON), TABLE, prefix)
    with located(place):
        fields = {name: _text(prefix, value) for name, value in entry.items() if name not in _COMMON}
        store = _make_store(kind, fields)
    try:
        seconds = float(entry.get("cache_seconds", CACHE_SECONDS))
    except (TypeError, ValueError):
        raise ConfigError(
            f"{file.shown}: cache_seconds of [secrets.{prefix}] is no number",
            where=file.place((TABLE, prefix, "cache_seconds")),
            hint="write cache_seconds = 60, or 0 to ask the store every time",
        ) from None
    return _cached_store(kind, store, seconds)


def _cached_store(kind: str, store: SecretResolver, seconds: float) -> SecretResolver:
    return _CachingResolver(store, seconds) if seconds > 0 and kind != "file" else store


def _text(prefix: str, value: Any) -> str:
    """Return a setting with its references expanded; a store must not resolve its own login."""
    if isinstance(value, str) and f"${{{prefix}:" in value:
        raise ConfigError(f"[secrets.{prefix}] refers to itself", hint="take its login from the environment or a file")
    return expand(str(value).lower() if isinstance(value, bool) else str(value))


def _make_store(kind: str, fields: Mapping[str, str]) -> SecretResolver:
    if kind == "file":
        return FileResolver(fields.get("folder"))
    if kind == "vault":
        from ematix_flow.secrets.vault import VaultResolver
        from ematix_flow.secrets.vault_client import from_environment

        version = fields.get("kv_version", "2")
        if version not in ("1", "2"):
            raise ConfigError(
                f"there is no kv_version {version!r}", hint="write kv_version = 2, or 1 for an old engine"
            )
        return VaultResolver(from_environment(fields), fields.get("mount_point", "secret"), kv_version=int(version))
    if kind == "aws":
        from ematix_flow.secrets import aws

        return aws.from_settings(fields)
    from ematix_flow.secrets import gcp

    return gcp.from_settings(fields)
