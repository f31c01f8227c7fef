"""The Arrow lanes: a source's part and a sink's writer meet inside one task, and no row passes the JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from ematix_flow.contract.read import ReadPlan
from ematix_flow.contract.write import Stage, WriteJob
from ematix_flow.declare.types import ColumnType
from ematix_flow.foundation.errors import FlowError

Carried = tuple[tuple[str, ColumnType], ...]
"""Columns in the order and in the types in which they travel."""


@dataclass(frozen=True)
class ArrowParts:
    """A read, cut into parts: `read(number)` gives the Arrow batches of one of them, inside a task."""

    count: int
    columns: Carried
    read: Callable[[int], Iterator[Any]]
    translate: Callable[[Exception], FlowError]


class ArrowSource(Protocol):
    """A source whose parts can be read without Spark's rows."""

    def arrow_columns(self, plan: ReadPlan) -> Carried | str:
        """What the parts would give, or why this read has none."""

    def arrow_parts(self, plan: ReadPlan, open_until: ExitStack) -> ArrowParts:
        """The parts; what must stay open while they are read goes on `open_until`."""


class Outcome(Protocol):
    """What the tasks answer: few rows, one or so per task."""

    def collect(self) -> Sequence[Any]:
        """The rows, with their columns by name."""


class Tasks(Protocol):
    """Whatever runs a function over Arrow batches in tasks: a dataframe, or parts of a source."""

    def mapInArrow(self, func: Any, schema: str) -> Outcome:  # noqa: N802  Spark's own name
        """One call of `func` per task."""


class ArrowStage(Protocol):
    """A sink whose tasks take Arrow batches of exactly the declared columns."""

    def arrow_obstacle(self, job: WriteJob) -> str | None:
        """Why this load needs Spark's rows, None when it does not."""

    def stage_arrow(self, job: WriteJob, tasks: Tasks) -> Stage:
        """Fill the stage; nothing is visible yet."""
