"""Load strategies: what happens to rows that are already there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum


class Deletes(str, Enum):
    """What happens to target rows whose key is missing from a full source."""

    HARD = "hard"
    SOFT = "soft"


@dataclass(frozen=True)
class Append:
    """Insert every source row."""

    mode = "append"


@dataclass(frozen=True)
class Truncate:
    """Replace the whole table."""

    mode = "truncate"


@dataclass(frozen=True)
class Merge:
    """Insert new keys, update changed ones."""

    keys: tuple[str, ...]
    compare: tuple[str, ...]
    update: tuple[str, ...]
    deletes: Deletes | None = None
    mode = "merge"


@dataclass(frozen=True)
class Scd2:
    """Keep every version of a row with the time it was valid."""

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
    """Apply changes that messages tell of: rows are written and deleted by key, and old news is left out."""

    keys: tuple[str, ...]
    compare: tuple[str, ...]
    update: tuple[str, ...]
    gate: str
    """Whose news it is: the stream and its target, whatever its checkpoint."""
    soft: str | None = None
    """The column that says when a row was deleted; rows are removed without one."""
    tolerance_ms: int = 0
    """News that is older than this is worth a warning."""
    mode = "merge"


Strategy = Append | Truncate | Merge | Scd2 | Changes


@dataclass(frozen=True)
class Incremental:
    """Read only rows at or after the last watermark (less a lookback)."""

    column: str
    lookback: timedelta | None = None
