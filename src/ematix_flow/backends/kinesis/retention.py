"""Detection of records that Kinesis dropped before a stream read them.

The position of a stream is behind a record. While that record is retained, so is everything after it. If it expired,
nothing else did as long as the shard was seen without newer records within the retention: the times of such
observations are saved beside the checkpoint, so that a quiet shard raises no alarm. A stream that stood still for
longer, and finds newer records, may have lost some.

A running stream lags by the age of the records that it reads. While that is less than a day, the minimum retention of
the service, nothing can have expired, and no request is made.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ematix_flow.backends.kinesis.client import Kinesis
from ematix_flow.backends.kinesis.shards import Position, Shard, Standing
from ematix_flow.contract.stream import Lost, StreamRead
from ematix_flow.families.lake.homes import home_of
from ematix_flow.families.lake.place import LakePath, read_if_there, write_atomically
from ematix_flow.foundation.errors import PlanError

_NOTE = "kinesis_ends.json"
_EVERY_SECONDS = 60.0
_MOST_LOOKS = 50
"""The most answers without a record before the oldest one that is retained."""
_SURE_SECONDS = 23 * 3600.0
"""The service retains every record for at least a day; its clock may differ from ours."""
_UNSURE_SECONDS = 3600.0
_ASK_SECONDS = 10.0


@dataclass(frozen=True)
class Ends:
    """The times at which each shard was last seen without newer records."""

    path: LakePath

    @classmethod
    def beside(cls, read: StreamRead) -> Ends:
        """Return those of one source of a stream."""
        return cls(home_of(read.checkpoint) / read.own(_NOTE))

    def seen(self, shard: str, position: Position) -> float | None:
        """Return when nothing followed this position for the last time; None when that is unknown."""
        sequence, at = self._load().get(shard, (None, 0.0))
        return float(at) if sequence == position.sequence else None

    def note(self, found: Mapping[str, Position]) -> None:
        """Record that nothing follows these positions now; a repeated observation is saved once a minute."""
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


@dataclass(frozen=True)
class Known:
    """A lower bound for the arrival of the records behind a shard's position."""

    since: float
    is_quiet: bool
    """Whether nothing followed the position at that time; else the record before it arrived then."""


@dataclass
class Horizon:
    """The bounds of a running stream's shards, to detect records that expire before they are read."""

    stream: str
    ends: Ends | None
    _known: dict[str, Known] = field(default_factory=dict)
    _kept_for: tuple[float, float] = (0.0, 0.0)

    def known(self, shard: str) -> Known | None:
        """Return the bound for the shard's current position; None without one."""
        return self._known.get(shard)

    def reached(self, shard: str, came: datetime) -> None:
        """Record the arrival time of the record before the shard's position."""
        self._known[shard] = Known(came.timestamp(), is_quiet=False)

    def quiet(self, shard: str) -> None:
        """Record that nothing follows the shard's position now."""
        self._known[shard] = Known(time.time(), is_quiet=True)

    def refuse_missed(self, client: Kinesis, standing: Standing, shards: Sequence[Shard]) -> None:
        """Raise PlanError for shards that expired unread."""
        missed = standing.missed(shards)
        if missed:
            raise refusal(self.stream, [_of_shard(client, shard, at, "") for shard, at in missed.items()])

    def refuse_loss(self, client: Kinesis, shard: str, position: Position, known: Known | None) -> None:
        """Raise PlanError when records behind the position may have expired; called after later ones were fetched."""
        if known is None and position.sequence is None:  # a start takes what is retained
            return
        if known is not None and time.time() - known.since < _SURE_SECONDS:
            return
        seen = self.ends.seen(shard, position) if self.ends is not None else None
        if known is not None and known.is_quiet:
            seen = max(known.since, seen or 0.0)
        since = known.since if known is not None else seen
        kept = _first_kept(client, shard, position, lambda: self._retention(client), since=since, quiet=seen)
        if kept is not None:
            raise refusal(self.stream, [_of_shard(client, shard, position, kept)])

    def _retention(self, client: Kinesis) -> float:
        """Return the retention in seconds, cached for 10 s: a stream that is far behind needs it for every shard."""
        at, seconds = self._kept_for
        if not at or time.monotonic() - at > _ASK_SECONDS:
            seconds = client.retention_seconds()
            self._kept_for = (time.monotonic(), seconds)
        return seconds


def refusal(stream: str, gone: Sequence[Lost]) -> PlanError:
    """Return the error of a stream that has lost records."""
    said = "; ".join(
        f"{one.part}: behind {one.first_wanted}, kept from {one.first_kept or 'nowhere'} on" for one in gone
    )
    return PlanError(
        f"Kinesis no longer keeps everything that {stream} has not read ({said})",
        hint=f"go on behind the gap, knowingly: flow stream rewind {stream} --to earliest",
    )


def lost(client: Kinesis, standing: Standing, ends: Ends) -> Sequence[Lost]:
    """Return the shards that no longer retain the records behind a position, or may not."""
    shards = client.shards()
    missed = standing.missed(shards)
    found = [_of_shard(client, shard, at, "") for shard, at in missed.items()]
    for shard, at in standing.positions.items():
        if at.is_end or at.sequence is None or shard in missed:
            continue
        seen = ends.seen(shard, at)
        kept = _first_kept(client, shard, at, client.retention_seconds, since=seen, quiet=seen)
        if kept is not None:
            found.append(_of_shard(client, shard, at, kept))
    return found


def _of_shard(client: Kinesis, shard: str, at: Position, kept: str) -> Lost:
    return Lost(f"{client.access.stream}-{shard}", at.sequence or "its beginning", kept, None)


def _first_kept(
    client: Kinesis,
    shard: str,
    at: Position,
    retention: Callable[[], float],
    *,
    since: float | None,
    quiet: float | None,
) -> str | None:
    """Return the oldest retained record, where others between the position and it may be gone; None otherwise."""
    if since is not None and time.time() - since < retention() - _UNSURE_SECONDS:
        return None
    oldest = first_after(client, shard, Position())
    if oldest is None or int(oldest) <= int(at.sequence or 0):
        return None
    return None if quiet is not None and time.time() - quiet < retention() else oldest


def first_after(client: Kinesis, shard: str, position: Position) -> str | None:
    """Return the first retained record behind a position; None where there is none."""
    iterator: str | None = client.iterator(shard, position)
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
