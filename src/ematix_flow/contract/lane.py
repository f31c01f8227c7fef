"""The Arrow lanes: one task reads a part of the source and writes it to the sink; rows do not pass through the JVM."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from ematix_flow.contract.read import ReadPlan
from ematix_flow.contract.write import Stage, WriteJob
from ematix_flow.declare.types import ColumnType
from ematix_flow.foundation.errors import FlowError

Carried = tuple[tuple[str, ColumnType], ...]
"""Columns in the order and with the types of the transferred batches."""


@dataclass(frozen=True)
class ArrowParts:
    """A read split into parts: `read(number)` yields the Arrow batches of one part, inside a task."""

    count: int
    columns: Carried
    read: Callable[[int], Iterator[Any]]
    translate: Callable[[Exception], FlowError]


class ArrowSource(ABC):
    """A capability of a batch source: its parts can be read without Spark rows."""

    @abstractmethod
    def arrow_columns(self, plan: ReadPlan) -> Carried | str:
        """Return the columns of the parts, or the reason (a text) why this read has no parts."""

    @abstractmethod
    def arrow_parts(self, plan: ReadPlan, open_until: ExitStack) -> ArrowParts:
        """Return the parts; resources needed while they are read are registered on `open_until`."""


class TaskResults(Protocol):
    """The rows that the tasks return: few, about one per task."""

    def collect(self) -> Sequence[Any]:
        """Run the tasks and return their rows, with columns accessible by name."""


class TaskInput(Protocol):
    """An input whose tasks run a function over Arrow batches: a dataframe, or the parts of a source."""

    def mapInArrow(self, func: Any, schema: str) -> TaskResults:  # noqa: N802  Spark's own name
        """Call `func` once per task."""


class ArrowStage(ABC):
    """A capability of a batch sink: its tasks accept Arrow batches of exactly the declared columns."""

    @abstractmethod
    def arrow_obstacle(self, job: WriteJob) -> str | None:
        """Return the reason why this load needs Spark rows, None when it does not."""

    @abstractmethod
    def stage_arrow(self, job: WriteJob, tasks: TaskInput) -> Stage:
        """Fill the stage; readers do not see it yet."""
