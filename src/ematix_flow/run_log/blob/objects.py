"""JSON documents in a bucket, changed by compare-and-swap."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ematix_flow.foundation.errors import ConnectionFailed, Unreachable
from ematix_flow.storage.object_store import ABSENT, ObjectStore, in_parallel, put_if

VERSION = 1
_TRIES = 20
_VERSION_KEY = "version.json"

Document = dict[str, Any]


class Objects:
    """The documents below one prefix of a bucket."""

    def __init__(self, bucket: ObjectStore, prefix: str) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._check_version()

    def read(self, key: str) -> Document | None:
        """Return a document; None if it does not exist."""
        stored = self._bucket.get(self._prefix + key)
        return _parsed(stored.body) if stored is not None else None

    def read_all(self, keys: Iterable[str]) -> list[Document]:
        """Return many documents, read in parallel, in the order of their keys; missing ones are left out."""
        return [document for document in in_parallel(self.read, keys) if document is not None]

    def write(self, key: str, document: Mapping[str, Any]) -> None:
        """Write a document, replacing an existing one."""
        self._bucket.put(self._prefix + key, _body(document))

    def mark(self, *keys: str) -> None:
        """Write empty objects, whose keys are the information."""
        in_parallel(lambda key: self._bucket.put(self._prefix + key, b""), keys)

    def create(self, key: str, document: Mapping[str, Any]) -> bool:
        """Write a document unless it exists; return True to exactly one caller."""
        return self._swap(key, document, match=ABSENT)

    def change(self, key: str, change: Callable[[Document | None], Document | None]) -> Document | None:
        """Atomically replace a document by the result of `change`; return that, or None if `change` returned None."""
        for number in range(_TRIES):
            stored = self._bucket.get(self._prefix + key)
            after = change(_parsed(stored.body) if stored is not None else None)
            if after is None:
                return None
            if self._swap(key, after, match=stored.tag if stored is not None else ABSENT):
                return after
            time.sleep(random.uniform(0.5, 1) * min(0.01 * 2**number, 0.5))  # noqa: S311
        raise Unreachable(f"the run log {self._bucket.label} is busy: {key} keeps changing", hint="try again")

    def keys(self, prefix: str, *, page: int = 1000) -> Iterator[str]:
        """Yield the keys below this one, in order."""
        listed = self._bucket.listed(self._prefix + prefix, page=page)
        return (item.key[len(self._prefix) :] for item in listed)

    def folders(self, prefix: str) -> list[str]:
        """Return the distinct key prefixes below this one, up to and including the next slash."""
        folders, _ = self._bucket.children(self._prefix + prefix)
        return [f"{key[len(self._prefix) :]}/" for key in folders]

    def delete(self, *keys: str) -> None:
        """Delete objects; ignore those that do not exist."""
        self._bucket.delete(self._prefix + key for key in keys)

    def close(self) -> None:
        """Close the connections."""
        self._bucket.close()

    def _swap(self, key: str, document: Mapping[str, Any], *, match: str) -> bool:
        body = _body({**document, "attempt_id": uuid.uuid4().hex})
        return put_if(self._bucket, self._prefix + key, body, match=match) is not None

    def _check_version(self) -> None:
        """Raise if the run log has a later version; the first listing also checks that the bucket exists."""
        next(iter(self._bucket.listed(self._prefix, page=1)), None)
        known = self.read(_VERSION_KEY)
        if known is None:
            self._bucket.put(self._prefix + _VERSION_KEY, _body({"version": VERSION}))
        elif known.get("version", 0) > VERSION:
            raise ConnectionFailed(
                f"the run log {self._bucket.label} has version {known['version']}, "
                f"and this program knows versions up to {VERSION}",
                hint="update ematix-flow-spark, or use another run log: --run-log URL",
            )


def _body(document: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(document), default=str, ensure_ascii=False).encode()


def _parsed(body: bytes) -> Document:
    parsed: Document = json.loads(body)
    return parsed
