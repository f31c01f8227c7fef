"""Where a stream of Kinesis stands: a position in every shard, and which shards may be read next.

As the checkpoint keeps it: `{"*": "TRIM", "shardId-000000000000": "END:4959…", "shardId-000000000001": "4960…"}`. `*` is
where shards begin that nobody has read from yet.
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
    """One shard and those it came from."""

    name: str
    parents: tuple[str, ...] = ()

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Shard:
        """As the service tells it."""
        parents = (told.get("ParentShardId"), told.get("AdjacentParentShardId"))
        return cls(str(told["ShardId"]), tuple(str(parent) for parent in parents if parent))

    @property
    def number(self) -> int | None:
        """What is behind its name.

        >>> Shard("shardId-000000000007").number
        7
        """
        return number_of(self.name)


@dataclass(frozen=True)
class Position:
    """After a record, at a moment, or at the very beginning; and whether the shard ended there."""

    sequence: str | None = None
    moment_ms: int | None = None
    is_end: bool = False

    @classmethod
    def of(cls, text: str) -> Position:
        """From the checkpoint's words.

        >>> Position.of("END:496").is_end, Position.of("TRIM"), str(Position.of("AT:1700"))
        (True, Position(sequence=None, moment_ms=None, is_end=False), 'AT:1700')
        """
        if text.startswith(_END):
            return replace(cls.of(text.removeprefix(_END)), is_end=True)
        if text.startswith(_AT):
            return cls(moment_ms=int(text.removeprefix(_AT)))
        return cls() if text == _TRIM else cls(sequence=str(int(text)))

    def __str__(self) -> str:
        where = self.sequence or (f"{_AT}{self.moment_ms}" if self.moment_ms is not None else _TRIM)
        return f"{_END}{where}" if self.is_end else where

    def asked(self) -> dict[str, Any]:
        """The words of a request for what follows."""
        if self.sequence is not None:
            return {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": self.sequence}
        if self.moment_ms is not None:
            moment = datetime.fromtimestamp(self.moment_ms / 1000, tz=timezone.utc)
            return {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": moment}
        return {"ShardIteratorType": "TRIM_HORIZON"}

    def after(self, sequence: str) -> Position:
        """Behind a record."""
        return Position(sequence=sequence)

    def ended(self) -> Position:
        """The same place, and nothing follows."""
        return replace(self, is_end=True)


@dataclass(frozen=True)
class Standing:
    """A position in every shard that was begun."""

    floor: Position
    positions: Mapping[str, Position]

    @classmethod
    def of(cls, kept: Mapping[str, str]) -> Standing:
        """As the checkpoint keeps it."""
        positions = {name: Position.of(text) for name, text in kept.items() if name != FLOOR}
        return cls(Position.of(kept.get(FLOOR, _TRIM)), positions)

    def told(self) -> dict[str, str]:
        """For the checkpoint."""
        return {FLOOR: str(self.floor), **{name: str(at) for name, at in sorted(self.positions.items())}}

    def joined_by(self, shards: Iterable[Shard]) -> Standing:
        """With the shards that may be begun now: those whose parents were read to their end, or are kept no more.

        Shards that are gone and were read to their end are forgotten.
        """
        there = {shard.name: shard for shard in shards}
        begun = {name: at for name, at in self.positions.items() if name in there or not at.is_end}
        for shard in there.values():
            if shard.name not in begun and all(self._is_read(parent, there) for parent in shard.parents):
                begun[shard.name] = self.floor
        return replace(self, positions=begun)

    def missed(self, shards: Iterable[Shard]) -> Mapping[str, Position]:
        """Shards of which something is gone that was not read, with the positions behind which it was.

        A shard is kept for as long as the last of its records. One that was begun may go unread, and so may one that waited
        for its parents: those that came from it are still there, and nobody has begun them.
        """
        there = {shard.name: shard for shard in shards}
        gone = {name: at for name, at in self.positions.items() if name not in there and not at.is_end}
        if not self.positions:  # a beginning takes what is kept
            return gone
        for shard in there.values():
            for parent in shard.parents if shard.name not in self.positions else ():
                if parent not in there:
                    gone.setdefault(shard.name if parent in self.positions else parent, Position())
        return gone

    def _is_read(self, parent: str, there: Mapping[str, Shard]) -> bool:
        known = self.positions.get(parent)
        return known.is_end if known is not None else parent not in there

    def at(self, shard: str) -> Position:
        """Where a shard stands."""
        return self.positions.get(shard, self.floor)

    def moved(self, shard: str, position: Position) -> Standing:
        """With one shard further on."""
        return replace(self, positions={**self.positions, shard: position})

    @property
    def open(self) -> Sequence[str]:
        """Shards that may still give something."""
        return [name for name, at in sorted(self.positions.items()) if not at.is_end]


def number_of(shard: str) -> int | None:
    """The number in a shard's name, where it has one that fits."""
    tail = shard.rpartition("-")[2]
    return int(tail) if tail.isdigit() and int(tail) < 2**31 else None
