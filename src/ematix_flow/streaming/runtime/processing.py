"""The interface of row processing beyond SQL: windows, joins and change data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ematix_flow.streaming.dlq.letters import FailedRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class BatchRows:
    """The rows of one micro-batch, as the transform returned them."""

    number: int
    frames: Sequence[DataFrame]
    """The rows of every source."""
    open_until: ExitStack
    """Releases what the micro-batch keeps until its end."""
    splits: bool
    """Whether rows that fail are split off; otherwise they fail the micro-batch."""


@dataclass(frozen=True)
class StagedProcessing:
    """What a processor has prepared of a micro-batch, without an effect that lasts."""

    batch: BatchRows
    failed: tuple[FailedRows, ...] = ()
    is_new: bool = True
    """Whether the rows are read now; an earlier try may have committed them."""


@dataclass(frozen=True)
class ProcessedRows:
    """The rows for the targets; None when there are none."""

    rows: DataFrame | None
    failed: tuple[FailedRows, ...] = ()
    figures: Mapping[str, int] = field(default_factory=dict)
    """Counts by metric name."""


class BatchProcessor(Protocol):
    """Row processing beyond SQL, in two steps: nothing lasts before `commit`."""

    is_a_stage: bool
    """Whether `stage` reads all rows."""

    def stage(self, batch: BatchRows) -> Any:
        """Return the prepared rows, as StagedProcessing of the processor's own type."""

    def commit(self, staged: Any) -> ProcessedRows:
        """Return the rows for the targets, after what has to last was committed."""

    def skip_batch(self, number: int) -> None:
        """Record a micro-batch whose messages all failed to decode."""
