"""A write: the job, its commit token, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ematix_flow.contract.ddl import DdlStep
from ematix_flow.contract.shape import TargetShape
from ematix_flow.declare.strategy import Incremental, Strategy
from ematix_flow.foundation.errors import LeaseLost


@dataclass(frozen=True)
class Commit:
    """The idempotency token that travels with every write."""

    writer: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.writer} / {self.sequence}"


@dataclass(frozen=True)
class Fence:
    """Who may write for a stream: the number grows with every generation of its checkpoint, and a target that has seen one
    takes nothing from those before it."""

    name: str
    number: int

    def lost(self) -> LeaseLost:
        """A later generation has written here."""
        return LeaseLost(
            f"{self.name} was begun anew while this process stood still, which writes nothing any more",
            hint="flow runs list shows who runs it now; was its checkpoint made by a machine whose clock is behind?",
        )


@dataclass(frozen=True)
class WriteJob:
    """Everything a sink needs to know about one load; `pending` is what a rehearsal has not done to the table."""

    run_id: str
    pipeline: str
    writer: str
    shape: TargetShape
    strategy: Strategy
    started_at: datetime
    path: str = "cross_db"
    mode: str = ""
    """The strategy as the user wrote it (scd1), for the history."""
    incremental: Incremental | None = None
    max_delete_fraction: float = 0.5
    accept_deletes: int | None = None
    write_options: Mapping[str, Any] = field(default_factory=dict)
    rehearsal: bool = False
    pending: tuple[DdlStep, ...] = ()
    on_cluster: bool = False
    """Whether other machines do the work, which then look at large stages, too."""
    once: bool = False
    """Whether this writer's first publish is its only one, as for a window: whoever comes later finds it loaded."""
    batch: int | None = None
    """The micro-batch of a stream, whose number gives the token; its run id is the same in every try, and there are too
    many of them for the history."""
    fence: Fence | None = None


@dataclass(frozen=True)
class Counts:
    """What a load did to the rows; exact."""

    read: int = 0
    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    closed: int = 0
    deleted: int = 0
    null_watermarks: int = 0
    stale: int = 0
    """Changes that were left out because the target knows newer ones of their keys."""
    late: int = 0
    """Those of them that are older than is tolerated."""
    contradicted: int = 0
    """Those that the source's log says are older, and whose clock is later than is tolerated."""


@dataclass(frozen=True)
class Opening:
    """What a sink says when a run opens it: the token, the last watermark, and a load found already published."""

    commit: Commit
    watermark: str | None = None
    recovered: WriteResult | None = None


@dataclass(frozen=True)
class Stage:
    """Rows of one run, written beside the target and not yet visible."""

    relation: str
    rows: int
    location: str | None = None


@dataclass(frozen=True)
class WriteResult:
    """The outcome of one load into one target."""

    run_id: str
    commit: Commit
    counts: Counts
    watermark: str | None = None
    status: str = "success"
    repeated: bool = False
    counted: bool = True
