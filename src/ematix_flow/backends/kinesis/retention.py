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

from ematix_flow.backends.kinesis.client import KinesisClient
from ematix_flow.backends.kinesis.shards import Shard, ShardPosition, ShardPositions
from ematix_flow.contract.stream import LostRows, StreamRead
from ematix_flow.foundation.errors import PlanError
from ematix_flow.storage.addresses import path_of_address
from ematix_flow.storage.paths import LakePath, read_text_if_exists, write_atomically

_NOTE = "kinesis_ends.json"
_EVERY_SECONDS = 60.0
_MOST_LOOKS = 50
"""The most answers without a record before the oldest one that is retained."""
_SURE_SECONDS = 23 * 3600.0
"""The service retains every record for at least a day; its clock may differ from ours."""
_UNSURE_SECONDS = 3600.0
_ASK_SECONDS = 10.0


@dataclass(frozen=True)
class ShardEnds:
    """The times at which each shard was last seen without newer records."""

    path: LakePath

    @classmethod
    def beside(cls, read: StreamRead) -> ShardEnds:
        """Return those of one source of a stream."""
        return cls(path_of_address(read.checkpoint) / read.state_name(_NOTE))

    def last_seen_empty(self, shard: str, position: ShardPosition) -> float | None:
        """Return when nothing followed this position for the last time; None when that is unknown."""
        sequence, at = self._load().get(shard, (None, 0.0))
        return float(at) if sequence == position.sequence else None

    def record_empty(self, positions: Mapping[str, ShardPosition]) -> None:
        """Record that nothing follows these positions now; a repeated observation is saved once a minute."""
        kept, now = self._load(), time.time()
        new = {shard: (at.sequence, now) for shard, at in positions.items() if at.sequence is not None}
        if any(
            kept.get(shard, ("", 0.0))[0] != one or now - kept[shard][1] > _EVERY_SECONDS
            for shard, (one, _) in new.items()
        ):
            write_atomically(self.path, json.dumps({**kept, **new}))

    def _load(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(read_text_if_exists(self.path) or "{}")
        return data


@dataclass(frozen=True)
class ArrivalBound:
    """A lower bound for the arrival of the records behind a shard's position."""

    since: float
    is_quiet: bool
    """Whether nothing followed the position at that time; else the record before it arrived then."""


@dataclass
class RetentionHorizon:
    """The bounds of a running stream's shards, to detect records that expire before they are read."""

    stream: str
    ends: ShardEnds | None
    _known: dict[str, ArrivalBound] = field(default_factory=dict)
    _retention_read: tuple[float, float] = (0.0, 0.0)

    def bound_of(self, shard: str) -> ArrivalBound | None:
        """Return the bound for the shard's current position; None without one."""
        return self._known.get(shard)

    def note_record(self, shard: str, came: datetime) -> None:
        """Record the arrival time of the record before the shard's position."""
        self._known[shard] = ArrivalBound(came.timestamp(), is_quiet=False)

    def note_empty(self, shard: str) -> None:
        """Record that nothing follows the shard's position now."""
        self._known[shard] = ArrivalBound(time.time(), is_quiet=True)

    def refuse_missed(self, client: KinesisClient, standing: ShardPositions, shards: Sequence[Shard]) -> None:
        """Raise PlanError for shards that expired unread."""
        missed = standing.missed_shards(shards)
        if missed:
            raise retention_refusal(
                self.stream, [_loss_in_shard(client, shard, at, "") for shard, at in missed.items()]
            )

    def refuse_loss(
        self, client: KinesisClient, shard: str, position: ShardPosition, known: ArrivalBound | None
    ) -> None:
        """Raise PlanError when records behind the position may have expired; called after later ones were fetched."""
        if known is None and position.sequence is None:  # a start takes what is retained
            return
        if known is not None and time.time() - known.since < _SURE_SECONDS:
            return
        seen = self.ends.last_seen_empty(shard, position) if self.ends is not None else None
        if known is not None and known.is_quiet:
            seen = max(known.since, seen or 0.0)
        since = known.since if known is not None else seen
        kept = _first_retained(client, shard, position, lambda: self._retention(client), since=since, quiet=seen)
        if kept is not None:
            raise retention_refusal(self.stream, [_loss_in_shard(client, shard, position, kept)])

    def _retention(self, client: KinesisClient) -> float:
        """Return the retention in seconds, cached for 10 s: a stream that is far behind needs it for every shard."""
        at, seconds = self._retention_read
        if not at or time.monotonic() - at > _ASK_SECONDS:
            seconds = client.retention_seconds()
            self._retention_read = (time.monotonic(), seconds)
        return seconds


def retention_refusal(stream: str, gone: Sequence[LostRows]) -> PlanError:
    """Return the error of a stream that has lost records."""
    details = "; ".join(
        f"{one.part}: behind {one.first_wanted}, kept from {one.first_kept or 'nowhere'} on" for one in gone
    )
    return PlanError(
        f"Kinesis no longer keeps everything that {stream} has not read ({details})",
        hint=f"go on behind the gap, knowingly: flow stream rewind {stream} --to earliest",
    )


def lost_shards(client: KinesisClient, standing: ShardPositions, ends: ShardEnds) -> Sequence[LostRows]:
    """Return the shards that no longer retain the records behind a position, or may not."""
    shards = client.shards()
    missed = standing.missed_shards(shards)
    losses = [_loss_in_shard(client, shard, at, "") for shard, at in missed.items()]
    for shard, at in standing.positions.items():
        if at.is_end or at.sequence is None or shard in missed:
            continue
        seen = ends.last_seen_empty(shard, at)
        kept = _first_retained(client, shard, at, client.retention_seconds, since=seen, quiet=seen)
        if kept is not None:
            losses.append(_loss_in_shard(client, shard, at, kept))
    return losses


def _loss_in_shard(client: KinesisClient, shard: str, at: ShardPosition, kept: str) -> LostRows:
    return LostRows(f"{client.access.stream}-{shard}", at.sequence or "its beginning", kept, None)


def _first_retained(
    client: KinesisClient,
    shard: str,
    at: ShardPosition,
    retention: Callable[[], float],
    *,
    since: float | None,
    quiet: float | None,
) -> str | None:
    """Return the oldest retained record, where others between the position and it may be gone; None otherwise."""
    if since is not None and time.time() - since < retention() - _UNSURE_SECONDS:
        return None
    oldest = first_after(client, shard, ShardPosition())
    if oldest is None or int(oldest) <= int(at.sequence or 0):
        return None
    return None if quiet is not None and time.time() - quiet < retention() else oldest


def first_after(client: KinesisClient, shard: str, position: ShardPosition) -> str | None:
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
