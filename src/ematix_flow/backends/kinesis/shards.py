"""The progress of a Kinesis stream: a position in every shard, and the shards that may be read next.

In the checkpoint: `{"*": "TRIM", "shardId-000000000000": "END:4959…", "shardId-000000000001": "4960…"}`. `*` is the
start of shards that have not been read yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

FLOOR = "*"
_TRIM = "TRIM"
_AT, _END = "AT:", "END:"


@dataclass(frozen=True)
class Shard:
    """One shard and its parents."""

    name: str
    parents: tuple[str, ...] = ()

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> Shard:
        """Return the shard in an answer of the service."""
        parents = (description.get("ParentShardId"), description.get("AdjacentParentShardId"))
        return cls(str(description["ShardId"]), tuple(str(parent) for parent in parents if parent))

    @property
    def number(self) -> int | None:
        """Return the number in its name.

        >>> Shard("shardId-000000000007").number
        7
        """
        return number_of(self.name)


@dataclass(frozen=True)
class ShardPosition:
    """A position in a shard: after a record, at a point in time, or at the beginning; it may be the shard's end."""

    sequence: str | None = None
    moment_ms: int | None = None
    is_end: bool = False

    @classmethod
    def of(cls, text: str) -> ShardPosition:
        """Return the position in the checkpoint's text.

        >>> ShardPosition.of("END:496").is_end, ShardPosition.of("TRIM"), str(ShardPosition.of("AT:1700"))
        (True, ShardPosition(sequence=None, moment_ms=None, is_end=False), 'AT:1700')
        """
        if text.startswith(_END):
            return replace(cls.of(text.removeprefix(_END)), is_end=True)
        if text.startswith(_AT):
            return cls(moment_ms=int(text.removeprefix(_AT)))
        return cls() if text == _TRIM else cls(sequence=str(int(text)))

    def __str__(self) -> str:
        where = self.sequence or (f"{_AT}{self.moment_ms}" if self.moment_ms is not None else _TRIM)
        return f"{_END}{where}" if self.is_end else where

    def iterator_arguments(self) -> dict[str, Any]:
        """Return the arguments of a request for the records that follow."""
        if self.sequence is not None:
            return {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": self.sequence}
        if self.moment_ms is not None:
            moment = datetime.fromtimestamp(self.moment_ms / 1000, tz=timezone.utc)
            return {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": moment}
        return {"ShardIteratorType": "TRIM_HORIZON"}

    def after(self, sequence: str) -> ShardPosition:
        """Return the position behind a record."""
        return ShardPosition(sequence=sequence)

    def ended(self) -> ShardPosition:
        """Return the same position, marked as the shard's end."""
        return replace(self, is_end=True)


@dataclass(frozen=True)
class ShardPositions:
    """The position in every shard that was begun, and the start of all others."""

    floor: ShardPosition
    positions: Mapping[str, ShardPosition]

    @classmethod
    def of(cls, kept: Mapping[str, str]) -> ShardPositions:
        """Return the positions in the checkpoint's form."""
        positions = {name: ShardPosition.of(text) for name, text in kept.items() if name != FLOOR}
        return cls(ShardPosition.of(kept.get(FLOOR, _TRIM)), positions)

    def to_checkpoint(self) -> dict[str, str]:
        """Return the checkpoint's form of the positions."""
        return {FLOOR: str(self.floor), **{name: str(at) for name, at in sorted(self.positions.items())}}

    def with_new_shards(self, shards: Iterable[Shard]) -> ShardPositions:
        """Return the positions with the shards that may be begun: their parents are read to their end, or gone.

        Shards that are gone and were read to their end are removed.
        """
        known = {shard.name: shard for shard in shards}
        begun = {name: at for name, at in self.positions.items() if name in known or not at.is_end}
        for shard in known.values():
            if shard.name not in begun and all(self._is_read(parent, known) for parent in shard.parents):
                begun[shard.name] = self.floor
        return replace(self, positions=begun)

    def missed_shards(self, shards: Iterable[Shard]) -> Mapping[str, ShardPosition]:
        """Return shards with unread records that are gone, and the positions behind which they were.

        A shard is listed for as long as the last of its records is retained. A begun shard may expire unread, and so
        may one that waited for its parents; that shows in child shards that are still there and were not begun.
        """
        known = {shard.name: shard for shard in shards}
        gone = {name: at for name, at in self.positions.items() if name not in known and not at.is_end}
        if not self.positions:  # a start takes what is retained
            return gone
        for shard in known.values():
            for parent in shard.parents if shard.name not in self.positions else ():
                if parent not in known:
                    gone.setdefault(shard.name if parent in self.positions else parent, ShardPosition())
        return gone

    def _is_read(self, parent: str, shards: Mapping[str, Shard]) -> bool:
        known = self.positions.get(parent)
        return known.is_end if known is not None else parent not in shards

    def position_of(self, shard: str) -> ShardPosition:
        """Return the position of a shard."""
        return self.positions.get(shard, self.floor)

    def with_position(self, shard: str, position: ShardPosition) -> ShardPositions:
        """Return the positions with one shard moved."""
        return replace(self, positions={**self.positions, shard: position})

    @property
    def open_shards(self) -> Sequence[str]:
        """Return the names of the shards that may have further records."""
        return [name for name, at in sorted(self.positions.items()) if not at.is_end]


def number_of(shard: str) -> int | None:
    """Return the number in a shard's name; None where it has none that fits an INT."""
    tail = shard.rpartition("-")[2]
    return int(tail) if tail.isdigit() and int(tail) < 2**31 else None
