"""State backends: their protocol, the manifest that names the parts of a state, and the manifest as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ematix_flow.foundation.errors import RunFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LISTS = ("parts", "newest", "heard")


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


@dataclass(frozen=True, repr=False)
class StateLocation:
    """Where the state of one stream is in a database."""

    url: str
    schema: str
    stream: str
    generation: str
    since: int = 0
    """A number that is larger for every later generation."""


StateBackendMaker = Callable[[StateLocation], StateBackend]


def manifest_to_text(manifest: StateManifest) -> str:
    """Return the manifest as JSON.

    >>> manifest_from_text(manifest_to_text(StateManifest(7, ("a", "b"), newest=(1, None))), "here").newest
    (1, None)
    """
    return json.dumps(dataclasses.asdict(manifest))


def manifest_from_text(text: str, where: str) -> StateManifest:
    """Return the manifest from its text; unknown fields, which a later version adds, are ignored."""
    try:
        data = json.loads(text)
        known: dict[str, Any] = {
            field.name: tuple(data[field.name]) if field.name in _LISTS else data[field.name]
            for field in dataclasses.fields(StateManifest)
            if field.name in data
        }
        return StateManifest(**known)
    except (ValueError, TypeError) as exc:
        raise RunFailed(
            f"the note of the state in {where} is damaged",
            hint="bring it back from a backup, or begin anew: flow stream rewind NAME --to earliest",
        ) from exc


def parts_named(manifest: StateManifest) -> tuple[str, ...]:
    """Return every part that must stay."""
    return tuple(part for part in (*manifest.parts, manifest.outcome, manifest.late) if part is not None)


def missing_part(part: str, where: str) -> RunFailed:
    """Return the error for a part that a manifest names and that does not exist."""
    return RunFailed(
        f"the state in {where} has no part {part!r}",
        hint="bring it back from a backup, or begin anew: flow stream rewind NAME --to earliest",
    )
