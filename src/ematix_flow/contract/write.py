"""A write: the job, its commit token, its stage, and its result."""

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
    """The idempotency token that accompanies every write."""

    writer: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.writer} / {self.sequence}"


@dataclass(frozen=True)
class Fence:
    """The right to write for a stream: the number grows with every generation of its checkpoint, and a target that has
    recorded one refuses writes of earlier ones."""

    name: str
    number: int

    def lost(self) -> LeaseLost:
        """Return the error for a write after a later generation has written to the target."""
        return LeaseLost(
            f"{self.name} was begun anew while this process stood still, which writes nothing any more",
            hint="flow runs list shows who runs it now; was its checkpoint made by a machine whose clock is behind?",
        )


@dataclass(frozen=True)
class WriteJob:
    """The parameters of one load for a sink; `pending` lists the DDL steps that a dry run has not applied."""

    run_id: str
    pipeline: str
    writer: str
    shape: TargetShape
    strategy: Strategy
    started_at: datetime
    path: str = "cross_db"
    mode: str = ""
    """The strategy as the user wrote it (for example scd1), for the history."""
    incremental: Incremental | None = None
    max_delete_fraction: float = 0.5
    accept_deletes: int | None = None
    write_options: Mapping[str, Any] = field(default_factory=dict)
    dry_run: bool = False
    pending: tuple[DdlStep, ...] = ()
    on_cluster: bool = False
    """Whether the tasks run on other machines, which then also inspect large stages."""
    once: bool = False
    """Whether this writer publishes only once, as for a window: later attempts find it loaded."""
    batch: int | None = None
    """The micro-batch number of a stream, which becomes the token's sequence; every attempt has the same run id, and
    there are too many micro-batches for the history."""
    fence: Fence | None = None


@dataclass(frozen=True)
class Counts:
    """The exact row counts of a load."""

    read: int = 0
    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    closed: int = 0
    deleted: int = 0
    null_watermarks: int = 0
    stale: int = 0
    """Changes that were skipped because the target has newer changes of their keys."""
    late: int = 0
    """Skipped changes that are older than the tolerated lateness."""
    contradicted: int = 0
    """Skipped changes that are older by the source's log, but whose clock is later than tolerated."""


@dataclass(frozen=True)
class WriteSession:
    """The state of a newly opened target: the commit token, the last watermark, and a load found already published."""

    commit: Commit
    watermark: str | None = None
    recovered: WriteResult | None = None


@dataclass(frozen=True)
class Stage:
    """The staged rows of one run, written beside the target and not yet visible."""

    relation: str
    rows: int
    location: str | None = None


@dataclass(frozen=True)
class WriteResult:
    """The result of one load into one target."""

    run_id: str
    commit: Commit
    counts: Counts
    watermark: str | None = None
    status: str = "success"
    repeated: bool = False
    counted: bool = True
