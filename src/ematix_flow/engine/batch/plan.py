"""The plan of a run as frozen steps, which preview, validation and execution share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from ematix_flow.contract.ddl import DdlPlan, TableState
from ematix_flow.contract.read import ReadPlan
from ematix_flow.contract.write import WriteJob, WriteResult
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.quality.checks import Check
from ematix_flow.engine.batch.context import TargetContext
from ematix_flow.engine.batch.reading import PlannedSource, TargetSource, earliest_watermark
from ematix_flow.foundation.errors import FlowError
from ematix_flow.planning.lanes import LaneChoice


@dataclass(frozen=True)
class RunParameters:
    """The values that distinguish one run of a pipeline from another one."""

    run_id: str
    started_at: datetime
    accept_deletes: int | None = None
    dry_run: bool = False
    window: str = ""
    """The loaded window, as written in commit tokens; empty for a load without one."""


@dataclass(frozen=True)
class Ensure:
    """Bring the table to its declared shape."""

    found: TableState | None
    ddl: DdlPlan

    @property
    def creates(self) -> bool:
        """Return whether the table does not exist yet."""
        return self.found is None


@dataclass(frozen=True)
class Begin:
    """Get the commit token, the watermark, and the load that a dead run left behind."""


@dataclass(frozen=True)
class Refine:
    """Restrict the load to what the target does not have; only `Begin` tells."""


@dataclass(frozen=True)
class StageQuery:
    """Fill the stage by a query inside the database."""

    query: str


@dataclass(frozen=True)
class StageArrow:
    """Fill the stage with the Arrow batches of a read."""

    read: ReadPlan


@dataclass(frozen=True)
class StageRows:
    """Fill the stage with the Spark rows of the read that all targets share."""

    since: str | None = None
    """The watermark below which rows are left out."""


@dataclass(frozen=True)
class Adopt:
    """Take over a load that a dead run published, instead of loading the same rows again."""

    published: WriteResult


@dataclass(frozen=True)
class CheckStage:
    """Run the declared checks on the stage."""

    checks: tuple[Check, ...]


@dataclass(frozen=True)
class EnforceChecks:
    """Stop here if the policy forbids to publish rows that a check refuses."""

    checks: tuple[Check, ...]


@dataclass(frozen=True)
class Publish:
    """Make the stage visible together with the commit token and the watermark."""

    creates: bool
    """Whether the table does not exist before the run, so that a dry run has no table to compare with."""


@dataclass(frozen=True)
class Settle:
    """Close the history entry and drop the stage."""


FillStage = StageQuery | StageArrow | StageRows
LoadStep = Ensure | Begin | Refine | FillStage | Adopt | CheckStage | EnforceChecks | Publish | Settle


@dataclass(frozen=True)
class Route:
    """The way of the rows into one target: the write job, the path and the lane."""

    target: TargetContext
    job: WriteJob
    source: TargetSource
    lane: LaneChoice


@dataclass(frozen=True)
class LoadPlan:
    """The plan of the load of one target."""

    route: Route
    ensure: Ensure
    rows: FillStage | Adopt

    @property
    def opening(self) -> tuple[LoadStep, ...]:
        """Return the steps before the source is read."""
        return (self.ensure, Begin(), Refine())

    @property
    def loading(self) -> tuple[LoadStep, ...]:
        """Return the steps from the stage on; only those of a refined plan are final."""
        if isinstance(self.rows, Adopt):
            return (self.rows,)
        checks = tuple(self.route.target.load.checks)
        checking = (CheckStage(checks), EnforceChecks(checks)) if checks else ()
        return (self.rows, *checking, Publish(self.ensure.creates), Settle())


@dataclass(frozen=True)
class RefusedLoad:
    """A target that cannot be planned, and the reason."""

    route: Route
    error: FlowError
    opening: ClassVar[tuple[LoadStep, ...]] = ()
    loading: ClassVar[tuple[LoadStep, ...]] = ()


@dataclass(frozen=True)
class Read:
    """Read the source once, for all targets that need Spark rows."""

    since: str | None
    targets: int


@dataclass(frozen=True)
class Transform:
    """Run a transform after the load."""

    number: int
    transform: Any


@dataclass(frozen=True)
class RunPlan:
    """The plan of a run: first every load is opened, then the source is read, then every load is finished."""

    reading: PlannedSource
    loads: tuple[LoadPlan | RefusedLoad, ...]
    transforms: tuple[Transform, ...]

    def accepted(self) -> tuple[LoadPlan, ...]:
        """Return the loads of all targets; raise the error of the first one that cannot be planned."""
        for load in self.loads:
            if isinstance(load, RefusedLoad):
                raise load.error
        return tuple(load for load in self.loads if isinstance(load, LoadPlan))


def shared_read(spec: PipelineSpec, loads: Sequence[LoadPlan]) -> Read | None:
    """Return the read of the source for these refined loads; None if none of them needs Spark rows."""
    marks = [load.rows.since for load in loads if isinstance(load.rows, StageRows)]
    return Read(earliest_watermark(marks, spec), len(marks)) if marks else None


def transform_steps(spec: PipelineSpec) -> tuple[Transform, ...]:
    """Return the transforms after the load, in order."""
    return tuple(Transform(number, transform) for number, transform in enumerate(spec.transforms_post))
