"""Whether Kinesis has dropped records that a stream has not read.

A stream stands behind a record. Where that record is still kept, so is everything after it. Where it expired, nothing else
did as long as somebody saw within the retention that nothing followed it: such moments are noted beside the checkpoint, so
that a quiet shard raises no alarm. A stream that stood still for longer, and finds newer records, may have lost some.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ematix_flow.backends.kinesis.client import Kinesis
from ematix_flow.backends.kinesis.shards import Position, Standing
from ematix_flow.contract.stream import Lost, StreamRead
from ematix_flow.families.lake.homes import home_of
from ematix_flow.families.lake.place import LakePath, read_if_there, write_atomically

_NOTE = "kinesis_ends.json"
_EVERY_SECONDS = 60.0
_MOST_LOOKS = 50
"""Answers without a record before the oldest one that is kept."""


@dataclass(frozen=True)
class Ends:
    """When each shard was last seen with nothing behind a record."""

    path: LakePath

    @classmethod
    def beside(cls, read: StreamRead) -> Ends:
        """Those of one source of a stream."""
        return cls(home_of(read.checkpoint) / read.own(_NOTE))

    def seen(self, shard: str, position: Position) -> float | None:
        """When nothing followed this position for the last time, as far as anybody knows."""
        sequence, at = self._load().get(shard, (None, 0.0))
        return float(at) if sequence == position.sequence else None

    def note(self, found: Mapping[str, Position]) -> None:
        """Nothing follows these positions now; written down now and then."""
        kept, now = self._load(), time.time()
        new = {shard: (at.sequence, now) for shard, at in found.items() if at.sequence is not None}
        if any(
            kept.get(shard, ("", 0.0))[0] != one or now - kept[shard][1] > _EVERY_SECONDS
            for shard, (one, _) in new.items()
        ):
            write_atomically(self.path, json.dumps({**kept, **new}))

    def _load(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(read_if_there(self.path) or "{}")
        return found


def lost(client: Kinesis, standing: Standing, ends: Ends) -> Sequence[Lost]:
    """The shards that no longer keep what follows a position, or may not."""
    there = {shard.name for shard in client.shards()}
    found = []
    for shard, at in standing.positions.items():
        if at.is_end or at.sequence is None:
            continue
        kept = _first_kept(client, shard, at, ends) if shard in there else ""
        if kept is not None:
            found.append(Lost(f"{client.access.stream}-{shard}", at.sequence, kept, None))
    return found


def _first_kept(client: Kinesis, shard: str, at: Position, ends: Ends) -> str | None:
    """The oldest record that is kept, where others between it and the position may be gone."""
    oldest = _oldest(client, shard)
    if oldest is None or int(oldest) <= int(at.sequence or 0):
        return None
    seen = ends.seen(shard, at)
    return None if seen is not None and time.time() - seen < client.retention_seconds() else oldest


def _oldest(client: Kinesis, shard: str) -> str | None:
    iterator: str | None = client.iterator(shard, Position())
    for _ in range(_MOST_LOOKS):
        if iterator is None:
            return None
        got = client.records(iterator, most=1)
        if got.records:
            return str(got.records[0]["SequenceNumber"])
        if not got.behind_ms:
            return None
        iterator = got.following
    return None
