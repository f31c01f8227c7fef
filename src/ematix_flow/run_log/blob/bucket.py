"""The operations that a run log needs of an object store, above all conditional writes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

ABSENT = ""


class ObjectChanged(Exception):
    """The object is not in the expected state; nothing was written."""


@dataclass(frozen=True)
class Blob:
    """An object, and the tag of exactly this version of it."""

    body: bytes
    tag: str


class ObjectStore(Protocol):
    """One bucket or container; its methods raise a FlowError on failure."""

    @property
    def label(self) -> str:
        """Return its location for messages."""

    def get(self, key: str) -> Blob | None:
        """Return the object; None if it does not exist."""

    def put(self, key: str, body: bytes, *, match: str | None = None) -> None:
        """Write an object; with `match` only if its tag is this (or it is ABSENT), else raise Changed."""

    def keys(self, prefix: str, *, page: int = 1000) -> Iterator[str]:
        """Yield the keys with this prefix in order, listed in pages of this many keys."""

    def folders(self, prefix: str) -> list[str]:
        """Return the distinct key prefixes below this one, up to and including the next slash."""

    def delete(self, key: str) -> None:
        """Delete an object; do nothing if it does not exist."""

    def close(self) -> None:
        """Close the connections."""


class LazyClient:
    """A library's client, opened on first use, after closing, and anew in a forked child."""

    def __init__(self, client: Any, make: Callable[[], Any]) -> None:
        self._client_given = client
        self._make = make
        self._open: tuple[int, Any] | None = None

    def get(self) -> Any:
        """Return the client; one that was given is returned as it is."""
        if self._client_given is not None:
            return self._client_given
        if self._open is None or self._open[0] != os.getpid():
            self._open = (os.getpid(), self._make())
        return self._open[1]

    def close(self) -> None:
        """Close the client, except one that was given, which belongs to the caller."""
        if self._open is not None and self._open[0] == os.getpid():
            self._open[1].close()
        self._open = None
