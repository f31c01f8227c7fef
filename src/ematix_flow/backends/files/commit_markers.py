"""Commit markers of a table in a bucket: a batch exists when its marker does; one conditional write creates the marker.

Objects cannot be renamed, so the files of a batch are copied to their place first. Only readers that just list objects
see them there; for all others the marker decides:

    <table>/flow_batch=<run>/…            the files
    <table>/_commits/flow_batch=<run>     the marker: a record of the load; empty when the run was abandoned
    <table>/_commits/replaces-<run>       batches that this one replaces, until they are deleted
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from ematix_flow.backends.files.layout import BATCH
from ematix_flow.foundation.errors import LeaseHeld
from ematix_flow.storage.object_store import ABSENT, ConditionFailed, ListedObject, StoredObject, in_parallel
from ematix_flow.storage.paths import HeldLock
from ematix_flow.storage.s3_bucket import S3Bucket
from ematix_flow.storage.s3_path import S3Path

COMMITS = "_commits"
_REPLACES = "replaces-"
_RENEWED = "~"

Instead = Mapping[str, "str | None"]
"""Names of replaced batches, with the names of their replacements; None where there is no replacement."""


@dataclass(frozen=True)
class CommitMarkers:
    """The commit markers of one table."""

    table: S3Path

    def batches(self) -> list[S3Path]:
        """Return the published batches, sorted by name."""
        marks = {item.key.rpartition("/")[2]: item.size for item in self._bucket.listed(self._folder.prefix)}
        present = {name for name, size in marks.items() if name.startswith(f"{BATCH}=") and size}
        for name in marks:
            run_id = name.removeprefix(_REPLACES)
            if name != run_id and f"{BATCH}={run_id}" in present:
                instead = self._instead(run_id)
                present = (present - instead.keys()) | {new for new in instead.values() if new is not None}
        return [self.table / name for name in sorted(present)]

    def notes(self) -> list[str]:
        """Return the load records in the markers of all batches."""
        keys = [self._mark(path.name).key for path in self.batches()]
        return [stored.body.decode() for stored in in_parallel(self._bucket.get, keys) if stored is not None]

    def note(self, run_id: str) -> str | None:
        """Return the load record of one run, also from a rewritten batch; None where it has no batch here."""
        for item in self._bucket.listed(self._mark(f"{BATCH}={run_id}").key):
            name = item.key.rpartition("/")[2].removeprefix(f"{BATCH}={run_id}")
            if item.size and (not name or name.startswith(_RENEWED)):
                return _object_text(self._bucket.get(item.key))
        return None

    def renewed(self, batch: str, run_id: str) -> str:
        """Return the name of a batch after a run has rewritten it."""
        return f"{batch.partition(_RENEWED)[0]}{_RENEWED}{run_id}"

    def publish(
        self, run_id: str, staged: S3Path, note: str, *, instead: Instead, anew: S3Path, hold: HeldLock
    ) -> None:
        """Copy staged and rewritten files to their place, then write the marker; raise LeaseHeld if another run did."""
        if instead:
            self._bucket.put(self._replaces(run_id), json.dumps(dict(instead)).encode())
        moves = self._moves(staged, self.table / f"{BATCH}={run_id}")
        for old, new in instead.items():
            moves += self._moves(anew / old, self.table / new) if new is not None else []

        def copy(move: tuple[ListedObject, str]) -> None:
            hold.check()
            self._bucket.copy(*move)

        in_parallel(copy, moves)
        hold.check()
        self._commit(f"{BATCH}={run_id}", note)

    def _commit(self, name: str, note: str) -> None:
        key = self._mark(name).key
        try:
            self._bucket.put(key, note.encode(), match=ABSENT)
        except ConditionFailed:
            stored = self._bucket.get(key)
            if stored is None or stored.body:
                raise LeaseHeld(f"another run published {name} meanwhile; nothing was loaded twice",
                                hint="run it again") from None  # fmt: skip
            self._bucket.put(key, note.encode(), match=stored.tag)  # an earlier attempt of this run was abandoned

    def finish(self, run_id: str) -> None:
        """Delete the batches that a published one replaces; idempotent."""
        instead = self._instead(run_id)
        for old, new in instead.items():
            kept = self._bucket.get(self._mark(old).key) if new is not None else None
            if kept is not None and new is not None:
                self._bucket.put(self._mark(new).key, kept.body)
        self._bucket.delete(self._mark(old).key for old in instead)
        in_parallel(lambda old: self._bucket.delete_below((self.table / old).prefix), instead)
        self._bucket.delete([self._replaces(run_id)])

    def discard_run(self, run_id: str) -> None:
        """Delete the files of a run without a marker, after an empty marker prevents that it publishes later."""
        key = self._mark(f"{BATCH}={run_id}").key
        try:
            self._bucket.put(key, b"", match=ABSENT)
        except ConditionFailed:
            stored = self._bucket.get(key)
            if stored is not None and stored.body:
                raise LeaseHeld(f"run {run_id} is publishing into {self.table}", hint="run it again") from None
        instead = self._instead(run_id)
        for new in (f"{BATCH}={run_id}", *(name for name in instead.values() if name is not None)):
            self._bucket.delete_below((self.table / new).prefix)
        if instead:
            self._bucket.delete([self._replaces(run_id)])

    def _moves(self, source: S3Path, target: S3Path) -> list[tuple[ListedObject, str]]:
        begin = len(source.prefix)
        return [(item, f"{target.prefix}{item.key[begin:]}") for item in self._bucket.listed(source.prefix)]

    def _instead(self, run_id: str) -> Instead:
        replaced: dict[str, str | None] = json.loads(_object_text(self._bucket.get(self._replaces(run_id))) or "{}")
        return replaced

    def _mark(self, name: str) -> S3Path:
        return self._folder / name

    def _replaces(self, run_id: str) -> str:
        return (self._folder / f"{_REPLACES}{run_id}").key

    @property
    def _folder(self) -> S3Path:
        return self.table / COMMITS

    @property
    def _bucket(self) -> S3Bucket:
        return self.table.bucket


def _object_text(stored: StoredObject | None) -> str | None:
    return stored.body.decode() if stored is not None else None
