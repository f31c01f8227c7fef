"""A backend: one system, its manifest, and the small protocols its abilities follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ematix_flow.contract.ddl import DdlStep, TableState
from ematix_flow.contract.listening import ListenerMaker
from ematix_flow.contract.read import ReadPlan, SourceColumn
from ematix_flow.contract.shape import TargetShape
from ematix_flow.contract.stream import BrokerSinkMaker, StreamSourceMaker
from ematix_flow.contract.write import Opening, Stage, WriteJob, WriteResult
from ematix_flow.declare.loads import LoadSpec
from ematix_flow.declare.types import Column, ColumnType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EFFECTIVELY_ONCE = "effectively-once"


class BatchSource(Protocol):
    """Reads queries of one connection into Spark."""

    def plan(self, query: str, *, parallelism: int) -> ReadPlan:
        """Describe the result and choose the splits, without reading."""

    def since(self, query: str, column: SourceColumn, value: str) -> str | None:
        """The query, restricted to rows at or after the value and rows with NULL; None when it cannot be said."""

    def read(self, plan: ReadPlan, spark: SparkSession, open_until: ExitStack) -> DataFrame:
        """The rows as a lazy dataframe; what must stay open while it is read goes on `open_until`."""


class SqlClient(Protocol):
    """A plain session with the system, for people's functions, checks and post-load SQL."""

    def execute(self, sql: str) -> int:
        """Run a statement in its own transaction; rows affected."""

    def execute_all(self, statements: Sequence[str]) -> int:
        """Run statements in one transaction; rows affected in all."""

    def query(self, sql: str, *, limit: int | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows."""

    def close(self) -> None:
        """End the session."""


class BatchSink(Protocol):
    """Writes one load: open, stage, publish in one step, settle the history."""

    def begin(self, job: WriteJob) -> Opening:
        """Issue the commit token, read the watermark, settle what a dead run left.

        A rehearsal is opened before the table is there.
        """

    def stage(self, job: WriteJob, frame: DataFrame) -> Stage:
        """Fill a stage from Spark; nothing is visible yet."""

    def publish(self, job: WriteJob, stage: Stage, opening: Opening) -> WriteResult:
        """Make the stage visible together with the token; a rehearsal counts and changes nothing."""

    def settle(
        self, job: WriteJob, opening: Opening, result: WriteResult | None, error: str | None
    ) -> WriteResult | None:
        """Close the history entry and drop the stage; return what the target has of the load.

        That is `result`, or for a failed run what was published although the answer to its commit was lost.
        """

    def refused(self, job: WriteJob, error: str) -> None:
        """Keep a history entry of a run that failed before the target was opened."""

    def last_sequence(self, writer: str) -> int | None:
        """The sequence of the last commit of a writer, None when it never published."""


class QueryStage(Protocol):
    """A sink that can fill its stage from a query inside the same system."""

    def stage_query(self, job: WriteJob, query: str) -> Stage:
        """Fill the stage with INSERT … SELECT; no row leaves the system."""


class DdlPlanner(Protocol):
    """Inspects a table and applies steps to it."""

    def inspect(self, shape: TargetShape) -> TableState | None:
        """The table as it is, None when it is not there."""

    def apply(self, shape: TargetShape, steps: Sequence[DdlStep]) -> None:
        """Carry the steps out."""

    def statements(self, shape: TargetShape, steps: Sequence[DdlStep]) -> list[str]:
        """The steps in the system's own language."""

    def stored_type(self, shape: TargetShape, column: Column) -> ColumnType | None:
        """What `inspect` reports for a column created from this declaration."""


def _no_folders(_: Any) -> tuple[Path, ...]:
    return ()


@dataclass(frozen=True)
class TaskUse:
    """What tasks use on the machine they run on: packages beside pyarrow, and folders that all machines must share."""

    packages: tuple[str, ...] = ()
    folders: Callable[[Any], tuple[Path, ...]] = _no_folders


@dataclass(frozen=True)
class Backend:
    """What one system offers; a slot that is None is not offered."""

    name: str
    title: str
    connection_types: tuple[type, ...]
    dialect: str = ""
    strategies: frozenset[str] = frozenset()
    delivery: str = EFFECTIVELY_ONCE
    published_by: str = "one transaction"
    jars: tuple[str, ...] = ()
    jars_for: Callable[[Any], tuple[str, ...]] | None = None
    """The jar sets that some connections need beside `jars`."""
    extra: str | None = None
    batch_source: Callable[[Any], BatchSource] | None = None
    batch_sink: Callable[[Any], BatchSink] | None = None
    ddl: Callable[[Any], DdlPlanner] | None = None
    client: Callable[[Any], SqlClient] | None = None
    identity: Callable[[Any], tuple[str, ...]] | None = None
    tasks_reading: TaskUse = TaskUse()
    tasks_writing: TaskUse = TaskUse()
    one_writer: bool = False
    """Whether one process at a time may write, so that loads side by side would only wait for each other."""
    stream_source: StreamSourceMaker | None = None
    broker_sink: BrokerSinkMaker | None = None
    listener: ListenerMaker | None = None
    """Listens to messages that fire workflows."""
    stream_delivery: str = ""
    """The most that a stream into this system can promise; empty where nothing beside batches is offered."""
    takes_changes: bool = False
    """Whether change data can be applied to its tables."""
    lacks_on_sail: Callable[[Any, LoadSpec | None], str | None] | None = None
    """Why the native engine cannot read a connection, or carry out a load; None when it can."""
    notes: tuple[str, ...] = field(default=())
