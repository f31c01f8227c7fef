"""Common functions of secret stores: references with a key after `#`, errors, and the masking of values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ematix_flow.foundation.errors import MissingSecret
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.foundation.redact import remember_secret


class StoreUnreachable(MissingSecret):
    """The store did not respond; a retry may help."""

    retryable = True


def split_reference(reference: str) -> tuple[str, str | None]:
    """Return the name of a secret and the key inside it.

    >>> split_reference("shop/db#password"), split_reference("shop/db")
    (('shop/db', 'password'), ('shop/db', None))
    """
    name, mark, key = reference.partition("#")
    return name.strip(), key.strip() if mark and key.strip() else None


def chosen_value(document: Mapping[str, Any], key: str | None, *, reference: str, store: str) -> str:
    """Return the value of one key, or the document as JSON; all its values are masked from now on."""
    for value in document.values():
        remember_secret(value if isinstance(value, str) else json.dumps(value))
    if key is None:
        return json.dumps(dict(document))
    if key not in document:
        raise secret_absent(
            reference, store, f"the secret has no key {key!r}", hint=did_you_mean(key, map(str, document))
        )
    value = document[key]
    return value if isinstance(value, str) else json.dumps(value)


def secret_absent(reference: str, store: str, what: str, *, hint: str) -> MissingSecret:
    """Return the error for a secret that the store does not have."""
    return MissingSecret(f"{store} does not answer ${{{reference}}}: {what}", hint=hint, reference=reference)


def store_unreachable(reference: str, store: str, what: str, *, hint: str) -> StoreUnreachable:
    """Return the error for a store that did not respond."""
    return StoreUnreachable(f"{store} cannot be asked for ${{{reference}}}: {what}", hint=hint, reference=reference)
