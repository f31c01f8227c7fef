"""A backend (one external system): its manifest and the protocols that its capabilities implement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ematix_flow.contract.checks import CheckResult
from ematix_flow.contract.ddl import DdlStep, TableState
from ematix_flow.contract.read import ReadPlan, SourceColumn
from ematix_flow.contract.shape import TargetShape
from ematix_flow.contract.state import StateBackendMaker
from ematix_flow.contract.stream import BrokerSinkMaker, LetterTopicMaker, ListenerMaker, StreamSourceMaker
from ematix_flow.contract.write import Stage, WriteJob, WriteResult, WriteSession
from ematix_flow.declare.connections.base import Connection
from ematix_flow.declare.loads import LoadSpec
from ematix_flow.declare.quality.checks import Check
from ematix_flow.declare.types import Column, ColumnType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EFFECTIVELY_ONCE = "effectively-once"


class BatchSource(Protocol):
    """A reader of queries on one connection into Spark."""

    def plan(self, query: str, *, parallelism: int) -> ReadPlan:
        """Describe the result columns and choose the splits, without reading rows."""

    def since(self, query: str, column: SourceColumn, value: str) -> str | None:
        """Return the query restricted to rows at or after the value or with NULL; None when SQL cannot express it."""

    def read(self, plan: ReadPlan, spark: SparkSession, open_until: ExitStack) -> DataFrame:
        """Return the rows as a lazy dataframe; resources needed while it is read are registered on `open_until`."""


class DeclaredColumns(ABC):
    """A capability of a batch source: it can read untyped text by the declared types."""

    @abstractmethod
    def declare(self, columns: Sequence[Column]) -> None:
        """Use these types for columns that are only cast to them; called before `plan`."""


class SparkSqlSource(ABC):
    """A capability of a batch source of a lake: facts about a query that need no session."""

    @abstractmethod
    def weighs_little(self, query: str) -> bool:
        """Return whether all tables of a query are small; False if one of them is not found."""

    def plan_without_spark(self, query: str, *, parallelism: int) -> ReadPlan | None:
        """Return the plan of a query; None where only Spark can make it."""
        return None


class SqlClient(Protocol):
    """A plain session with the system, for user functions, checks and post-load SQL."""

    def execute(self, sql: str) -> int:
        """Run a statement in its own transaction and return the number of rows affected."""

    def execute_all(self, statements: Sequence[str]) -> int:
        """Run statements in one transaction and return the total number of rows affected."""

    def query(self, sql: str, *, limit: int | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return the column names and the rows of a query."""

    def close(self) -> None:
        """Close the session."""


class SqlText(Protocol):
    """The SQL of a database, for tables beside those of loads, such as dead letters."""

    def quote(self, identifier: str) -> str:
        """Return the quoted identifier."""

    def names(self, columns: Sequence[str]) -> str:
        """Return the quoted names, joined by commas."""

    def relation(self, schema: str, table: str) -> str:
        """Return the table's full name, quoted."""

    def text_literal(self, value: str) -> str:
        """Return a text literal."""

    def instant(self, moment: datetime) -> str:
        """Return a literal of a TimestampTZ column."""

    def create_table(self, relation: str, columns: Sequence[Column], *, primary_key: Sequence[str],
                     unique: Sequence[Sequence[str]] = ()) -> str:  # fmt: skip
        """Return a CREATE TABLE with keys."""


class BatchSink(Protocol):
    """A writer of loads: open, stage, publish in one step, settle the history."""

    def begin(self, job: WriteJob) -> WriteSession:
        """Issue the commit token, read the watermark, and resolve what a crashed run left behind.

        A dry run calls this before the table exists.
        """

    def stage(self, job: WriteJob, frame: DataFrame) -> Stage:
        """Fill a stage from a Spark dataframe; readers do not see it yet."""

    def check(self, job: WriteJob, stage: Stage, checks: Sequence[Check]) -> list[CheckResult]:
        """Return one result per check, computed from the rows of the stage; the source is not read again."""

    def publish(self, job: WriteJob, stage: Stage, write_session: WriteSession) -> WriteResult:
        """Make the stage visible together with the commit token; a dry run only counts and changes nothing."""

    def settle(
        self, job: WriteJob, write_session: WriteSession, result: WriteResult | None, error: str | None
    ) -> WriteResult | None:
        """Close the history entry, drop the stage, and return the result that the target holds for this load.

        That is `result`, or for a failed run the published result whose commit acknowledgement was lost.
        """

    def refused(self, job: WriteJob, error: str) -> None:
        """Record a history entry for a run that failed before the target was opened."""

    def record_transform(self, run_id: str, *, parent: str, pipeline: str, step: str, error: str | None,
                         metrics: str | None, started_at: datetime) -> None:  # fmt: skip
        """Record one post-load transform in the history."""

    def last_sequence(self, writer: str) -> int | None:
        """Return the sequence of a writer's last commit, None when it never published."""

    def last_sequences(self, schema: str, table: str, *, prefix: str, suffix: str) -> Mapping[str, int]:
        """Return the last sequence of every writer of a table whose name begins and ends so."""

    def has_database(self) -> bool:
        """Return False where connecting would create the database."""


class QueryStage(ABC):
    """A capability of a batch sink: it can fill its stage from a query inside the same system."""

    @abstractmethod
    def stage_query(self, job: WriteJob, query: str) -> Stage:
        """Fill the stage with INSERT … SELECT; rows do not leave the system."""


class DdlPlanner(Protocol):
    """An inspector of tables that also applies DDL steps to them."""

    def inspect(self, shape: TargetShape) -> TableState | None:
        """Return the current state of the table, None when it does not exist."""

    def apply(self, shape: TargetShape, steps: Sequence[DdlStep]) -> None:
        """Execute the steps."""

    def unique_groups(self, shape: TargetShape) -> list[tuple[str, ...]] | None:
        """Return the columns of every UNIQUE constraint of an existing table; None where the system has none."""

    def statements(self, shape: TargetShape, steps: Sequence[DdlStep]) -> list[str]:
        """Return the steps as statements of the system's own language."""

    def stored_type(self, shape: TargetShape, column: Column) -> ColumnType | None:
        """Return the type that `inspect` reports for a column created from this declaration."""


def _no_folders(_: Any) -> tuple[Path, ...]:
    return ()


@dataclass(frozen=True)
class TaskResources:
    """Task requirements on a worker machine: packages beside pyarrow, and folders that all machines must share."""

    packages: tuple[str, ...] = ()
    folders: Callable[[Any], tuple[Path, ...]] = _no_folders


@dataclass(frozen=True)
class Backend:
    """The manifest of one system; a slot that is None is not supported."""

    name: str
    title: str
    connection_types: tuple[type[Connection], ...]
    dialect: str = ""
    is_lake: bool = False
    """Whether Spark itself reads and changes its tables, so that its queries are Spark SQL and need a session."""
    strategies: frozenset[str] = frozenset()
    delivery: str = EFFECTIVELY_ONCE
    published_by: str = "one transaction"
    jars: tuple[str, ...] = ()
    jars_for: Callable[[Any], tuple[str, ...]] | None = None
    """Jar sets that some connections need in addition to `jars`."""
    extra: str | None = None
    batch_source: Callable[[Any], BatchSource] | None = None
    batch_sink: Callable[[Any], BatchSink] | None = None
    ddl: Callable[[Any], DdlPlanner] | None = None
    client: Callable[[Any], SqlClient] | None = None
    sql: Callable[[Any], SqlText] | None = None
    """The SQL of a database that can hold the dead letters of streams, which need merge and `client` as well."""
    identity: Callable[[Any], tuple[str, ...]] | None = None
    tasks_reading: TaskResources = TaskResources()
    tasks_writing: TaskResources = TaskResources()
    one_writer: bool = False
    """Whether only one process at a time can write, so that parallel loads would only wait for each other."""
    stream_source: StreamSourceMaker | None = None
    broker_sink: BrokerSinkMaker | None = None
    dead_letter_topic: LetterTopicMaker | None = None
    """Makes the access to a topic with the dead letters of streams that read this broker."""
    state_backend: StateBackendMaker | None = None
    """Makes the store for the state of windows, sessions and joins of a stream."""
    listener: ListenerMaker | None = None
    """Makes the listener for messages that trigger workflows."""
    stream_delivery: str = ""
    """The strongest delivery guarantee of a stream into this system; empty where only batches are supported."""
    takes_changes: bool = False
    """Whether change data can be applied to its tables."""
    lacks_on_sail: Callable[[Any, LoadSpec | None], str | None] | None = None
    """Returns the reason why the Sail engine cannot read a connection or execute a load; None when it can."""
    notes: tuple[str, ...] = field(default=())
