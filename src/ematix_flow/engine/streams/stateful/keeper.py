"""Where a stateful stream keeps what it remembers: named parts, and one note that says which of them hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Kept:
    """What holds after a micro-batch."""

    number: int
    parts: tuple[str, ...] = ()
    """The parts of the state, oldest first."""
    rows: int = 0
    """How many rows they have."""
    outcome: str | None = None
    """The part that holds what the micro-batch gave to the targets."""
    late: str | None = None
    """The part that holds its late rows, where they are dead letters."""
    mark: int | None = None
    """The watermark."""
    newest: tuple[int | None, ...] = ()
    """The newest event time of every source."""
    heard: tuple[int | None, ...] = ()
    """When every source was last heard of, by this machine's clock."""
    due: int | None = None
    """The next moment at which something comes out by itself."""
    compacted: int = 0
    """When the parts were last made one, by this machine's clock."""
    told: dict[str, int] = field(default_factory=dict)
    """What the micro-batch did, for the metrics."""
    made_by: str = ""
    """Which operator understands the state."""


class Keeper(Protocol):
    """A folder beside the checkpoint, or a database."""

    def kept(self) -> Kept | None:
        """The last note; None before the first."""

    def read(self, part: str) -> DataFrame:
        """The rows of a part that was written."""

    def write(self, part: str, frame: DataFrame) -> int:
        """Write a part, in place of an earlier try; how many rows it has. Nobody sees it before a note names it."""

    def size(self, parts: Sequence[str]) -> int:
        """How many bytes these parts take."""

    def commit(self, kept: Kept) -> None:
        """From now on this holds, in one step; parts that it does not name are removed."""

    def close(self) -> None:
        """End what is held open."""
