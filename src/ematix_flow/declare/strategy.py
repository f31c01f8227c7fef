"""Load strategies: how new rows are combined with those that are in the target."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum


class Deletes(str, Enum):
    """How target rows are deleted whose key is missing from a full source."""

    HARD = "hard"
    SOFT = "soft"


@dataclass(frozen=True)
class Append:
    """Inserts every source row."""

    mode = "append"


@dataclass(frozen=True)
class Truncate:
    """Replaces the whole table."""

    mode = "truncate"


@dataclass(frozen=True)
class Merge:
    """Inserts new keys, updates changed rows."""

    keys: tuple[str, ...]
    compare: tuple[str, ...]
    update: tuple[str, ...]
    deletes: Deletes | None = None
    mode = "merge"


@dataclass(frozen=True)
class Scd2:
    """Keeps every version of a row with its validity period."""

    keys: tuple[str, ...]
    compare: tuple[str, ...]
    event_time: str | None = None
    ttl: timedelta | None = None
    deletes: Deletes | None = None
    keeps_event_time: bool = True
    """Whether the table declares the event's column; else only the source has it, and it becomes valid_from."""
    mode = "scd2"


@dataclass(frozen=True)
class Changes:
    """Applies change data from messages: writes and deletes rows by key, and skips changes that are outdated."""

    keys: tuple[str, ...]
    compare: tuple[str, ...]
    update: tuple[str, ...]
    gate: str
    """The name of stream and target in the CDC watermark table, independent of the checkpoint."""
    soft: str | None = None
    """The column for the time of deletion; None if rows are removed."""
    tolerance_ms: int = 0
    """Changes that arrive more than this late, in milliseconds, are reported with a warning."""
    mode = "merge"


Strategy = Append | Truncate | Merge | Scd2 | Changes


@dataclass(frozen=True)
class Incremental:
    """Reads only rows at or after the last watermark (less a lookback)."""

    column: str
    lookback: timedelta | None = None
