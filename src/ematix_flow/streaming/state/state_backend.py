"""The protocol of state backends, and the manifest that names the parts of a state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class StateManifest:
    """The manifest of the state after a micro-batch."""

    number: int
    parts: tuple[str, ...] = ()
    """The parts of the state, oldest first."""
    rows: int = 0
    """The number of their rows."""
    outcome: str | None = None
    """The part with the rows that the micro-batch emitted to the targets."""
    late: str | None = None
    """The part with its late rows, where they are dead letters."""
    mark: int | None = None
    """The watermark."""
    newest: tuple[int | None, ...] = ()
    """The newest event time of every source."""
    heard: tuple[int | None, ...] = ()
    """When the last row of every source came, by this machine's clock."""
    due: int | None = None
    """The next moment at which rows are emitted without new input."""
    compacted: int = 0
    """When the parts were last merged to one, by this machine's clock."""
    told: dict[str, int] = field(default_factory=dict)
    """The counts of the micro-batch, for the metrics."""
    made_by: str = ""
    """The operator that can read the state."""


class StateBackend(Protocol):
    """A state backend: a folder beside the checkpoint, or a database."""

    def manifest(self) -> StateManifest | None:
        """Return the last manifest; None before the first."""

    def read(self, part: str) -> DataFrame:
        """Return the rows of a part that was written."""

    def write(self, part: str, frame: DataFrame) -> int:
        """Write a part in place of an earlier try; return its row count. It is not read before a manifest names it."""

    def size(self, parts: Sequence[str]) -> int:
        """Return the size of these parts in bytes."""

    def commit(self, manifest: StateManifest) -> None:
        """Make this manifest valid in one step; parts that it does not name are removed."""

    def close(self) -> None:
        """Close open resources."""
