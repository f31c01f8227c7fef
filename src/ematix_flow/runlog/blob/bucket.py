"""What an object store has to offer: objects that are written only if they are still as one saw them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

ABSENT = ""


class Changed(Exception):
    """The object is no longer as it was expected to be; nothing was written."""


@dataclass(frozen=True)
class Blob:
    """An object, and the tag that names exactly this state of it."""

    body: bytes
    tag: str


class Bucket(Protocol):
    """One bucket or container; errors come as FlowError."""

    @property
    def label(self) -> str:
        """Where it is, for people."""

    def get(self, key: str) -> Blob | None:
        """The object; None when it is not there."""

    def put(self, key: str, body: bytes, *, match: str | None = None) -> None:
        """Write an object; with `match` only if it has this tag (or is ABSENT), else Changed."""

    def keys(self, prefix: str, *, page: int = 1000) -> Iterator[str]:
        """The keys that begin so, in order, asked for by pages."""

    def folders(self, prefix: str) -> list[str]:
        """What comes next behind this prefix, up to and with the next slash."""

    def delete(self, key: str) -> None:
        """Remove an object; nothing happens when it is not there."""

    def close(self) -> None:
        """Let go of connections."""


class Client:
    """A library's client, opened when it is first needed: again after closing, and anew in a forked child."""

    def __init__(self, given: Any, make: Callable[[], Any]) -> None:
        self._given = given
        self._make = make
        self._open: tuple[int, Any] | None = None

    def get(self) -> Any:
        """The client; one that was given is used as it is."""
        if self._given is not None:
            return self._given
        if self._open is None or self._open[0] != os.getpid():
            self._open = (os.getpid(), self._make())
        return self._open[1]

    def close(self) -> None:
        """Let go of it; one that was given belongs to somebody else."""
        if self._open is not None and self._open[0] == os.getpid():
            self._open[1].close()
        self._open = None
