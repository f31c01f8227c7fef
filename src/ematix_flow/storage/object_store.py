"""The objects of one bucket, whatever store it is in: reading, conditional writes, listing, deletion, and their errors.

`storage.s3_objects`, `.gcs_objects` and `.azure_objects` implement it. A conditional write has one winner in all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import Any, Protocol, TypeVar

from ematix_flow.foundation.errors import ConnectionFailed, FlowError, PermissionDenied, StorageFull, Unreachable
from ematix_flow.foundation.redact import mask

ABSENT = ""
"""The condition that no object exists yet."""
AT_ONCE = 16
"""The number of requests that run in parallel."""
_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True)
class StoredObject:
    """The content of an object, and the tag of exactly this version."""

    body: bytes
    tag: str


@dataclass(frozen=True)
class ListedObject:
    """One object of a listing."""

    key: str
    size: int
    tag: str
    modified: datetime


class ObjectStore(Protocol):
    """One bucket or container; its methods raise a FlowError on failure."""

    @property
    def label(self) -> str:
        """Return its address for messages, without credentials."""

    def get(self, key: str) -> StoredObject | None:
        """Return an object; None if it does not exist."""

    def put(self, key: str, body: bytes, *, match: str | None = None) -> str:
        """Write an object and return its new tag; raise `ConditionFailed` unless its tag is `match`, or it is ABSENT."""

    def listed(self, prefix: str, *, page: int = 1000) -> Iterator[ListedObject]:
        """Yield the objects below a prefix, ordered by key and listed in pages of this many."""

    def children(self, prefix: str) -> tuple[Sequence[str], Sequence[ListedObject]]:
        """Return the direct children of a prefix: folders, without their slash, and objects."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; ignore those that do not exist."""

    def close(self) -> None:
        """Close the connections."""


def put_if(store: ObjectStore, key: str, body: bytes, *, match: str) -> str | None:
    """Write a text that no other process writes, and return its tag; None unless the tag was `match`, or it is ABSENT.

    After a lost response, a repeated request conflicts with the first one, which the text shows.
    """
    try:
        return store.put(key, body, match=match)
    except ConditionFailed:
        stored = store.get(key)
        return stored.tag if stored is not None and stored.body == body else None


class ConditionFailed(FlowError):
    """The condition of a write does not hold: another process changed the object first."""

    def __init__(self, key: str) -> None:
        super().__init__(f"another process changed {key}", hint="run it again")


class ObjectMissing(FlowError):
    """The object does not exist."""


class Failure(Enum):
    """What the error of a store's library means."""

    MISSING = auto()
    CHANGED = auto()
    REFUSED = auto()
    NO_BUCKET = auto()
    FULL = auto()
    BUSY = auto()
    UNREACHABLE = auto()
    UNUSABLE = auto()


@dataclass(frozen=True)
class StoreErrors:
    """The errors of one store: the one table that translates a `Failure` for every library and every use."""

    label: str
    bucket: str
    """The bucket as messages name it."""
    hints: Mapping[Failure, str] = field(repr=False)
    used_for: str = ""
    endpoint: str = ""

    def error(self, failure: Failure, key: str, message: str) -> FlowError:
        """Return the FlowError for a failure."""
        store = f"{self.used_for} {self.label}".lstrip()
        address = f" at {self.endpoint}" if self.endpoint else ""
        hint = self.hints.get(failure)
        match failure:
            case Failure.MISSING:
                return ObjectMissing(f"{self.label}/{key} does not exist")
            case Failure.CHANGED:
                return ConditionFailed(f"{self.label}/{key}")
            case Failure.REFUSED:
                return PermissionDenied(f"{store} refused: {message}", hint=hint)
            case Failure.NO_BUCKET:
                used_for = f" for {self.used_for}" if self.used_for else ""
                return ConnectionFailed(f"there is no {self.bucket}{address}{used_for}", hint=hint)
            case Failure.FULL:
                return StorageFull(f"no space left in {store}: {message}", hint="free space there and run again")
            case Failure.BUSY:
                return Unreachable(f"{store} is busy: {message}", hint="try again in a moment")
            case Failure.UNREACHABLE:
                return Unreachable(f"{store} cannot be reached{address}: {message}", hint=hint)
            case Failure.UNUSABLE:
                return ConnectionFailed(f"{store} cannot be used: {message}", hint=hint)

    @contextmanager
    def translated(self, failure_of: Callable[[Exception], Failure | None], key: str = "") -> Iterator[None]:
        """Translate the errors that `failure_of` recognises; it returns None for those of other origin."""
        try:
            yield
        except FlowError:
            raise
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                raise
            reason = getattr(error, "cause", None) or error  # Google's RetryError hides the error of the last attempt
            message = mask(str(reason).strip().partition("\n")[0])
            raise self.error(failure, key, message) from error


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


def in_parallel(work: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """Return `work(item)` for all items, in up to `AT_ONCE` threads: the latency of a request exceeds its work."""
    todo = list(items)
    if len(todo) < 2:
        return [work(item) for item in todo]
    with ThreadPoolExecutor(min(AT_ONCE, len(todo)), thread_name_prefix="bucket") as pool:
        return list(pool.map(work, todo))
