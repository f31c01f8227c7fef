"""The change that a load makes to a table, computed completely before the table is touched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.write import Counts
from ematix_flow.dataplane.type_mapping import spark_type
from ematix_flow.families.lake.columns import LakeJobSql
from ematix_flow.families.lake.observed import observed
from ematix_flow.sql.spark_text import quote
from ematix_flow.storage.paths import LakePath, engine_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ACTION = "__flow_action"
WRITE, DELETE = "'write'", "'delete'"
_FLAGS = ("inserted", "updated", "closed", "deleted", "missing")
_PREFIX = "__flow_"
OWN = (ACTION, *(_PREFIX + name for name in _FLAGS))


@dataclass(frozen=True)
class TableChange:
    """Rows to append, rows that replace the table, or actions to merge by the `match` columns (`how`)."""

    how: str
    frame: DataFrame
    counts: Counts
    match: tuple[str, ...] = ()
    files: tuple[Path, ...] | None = None
    """Parquet files with the rows in the table's own types; None if they are not written yet."""


@dataclass(frozen=True)
class StageFolder:
    """The folder of one run and one table: staged rows and intermediate results, as Parquet."""

    path: LakePath

    def write(self, name: str, frame: DataFrame, schema: str | None = None) -> DataFrame:
        """Write a frame and return it as read back; without `schema`, that of the frame is queried."""
        where = engine_uri(self.path / name)
        frame.write.mode("overwrite").parquet(where)
        return frame.sparkSession.read.schema(schema or frame.schema).parquet(where)

    def write_counted(
        self, name: str, frame: DataFrame, questions: Sequence[str], schema: str | None = None
    ) -> tuple[DataFrame, Mapping[str, Any]]:
        """Write a frame and return it with the results of some aggregates, computed during the write."""
        counted, results = observed(frame, questions, lambda: kept)
        kept = self.write(name, counted, schema)
        return kept, results()

    def write_actions(self, actions: DataFrame) -> tuple[DataFrame, ActionCounts]:
        """Write actions and return them with their counts."""
        kept, answers = self.write_counted("actions", actions, ActionCounts.questions())
        return kept, ActionCounts.from_row(answers)


@dataclass(frozen=True)
class ActionCounts:
    """The counts of written actions."""

    inserted: int
    updated: int
    closed: int
    deleted: int
    missing: int

    @classmethod
    def questions(cls) -> list[str]:
        """Return the aggregates that count actions."""
        return [f"coalesce(sum({_flag(name)}), 0) AS `{name}`" for name in _FLAGS]

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> ActionCounts:
        """Return the counts from the results of the aggregates."""
        return cls(**{name: int(row[name]) for name in _FLAGS})


@dataclass(frozen=True)
class ChangeDraft:
    """Actions on rows of these `columns`, matched by `match`, that are not computed yet.

    `counts` converts the action counts into the load's counts; it can query the number of `alive` rows in the table,
    and raises Brake if too many of them would be deleted.
    """

    actions: DataFrame
    columns: tuple[str, ...]
    match: tuple[str, ...]
    alive: str
    counts: Callable[[ActionCounts, Callable[[], int]], Counts]

    def to_change(self, target: DataFrame, folder: StageFolder) -> TableChange:
        """Return the change with its actions written to the stage folder, for tables that support MERGE."""
        kept, tally = folder.write_actions(self.actions)
        return TableChange("merge", kept, self.counts(tally, lambda: target.where(self.alive).count()), self.match)


def row_expressions(job_sql: LakeJobSql, values: Mapping[str, str]) -> list[str]:
    """Return expressions of a complete target row; columns without a value are NULL."""
    return [
        f"CAST({values.get(name, 'NULL')} AS {spark_type(job_sql.column(name).type)}) AS {quote(name)}"
        for name in job_sql.table
    ]


def with_all_columns(target: DataFrame, job_sql: LakeJobSql) -> DataFrame:
    """Return the target with all planned columns; in a dry run they are not added to the table itself."""
    existing = set(target.columns)
    missing = [name for name in job_sql.table if name not in existing]
    added = [f"CAST(NULL AS {spark_type(job_sql.column(name).type)}) AS {quote(name)}" for name in missing]
    return target.selectExpr("*", *added) if added else target


def action(kind: str, flags: Mapping[str, str]) -> list[str]:
    """Return expressions for the action on a row and its count flags; `kind` is SQL."""
    expressions = [f"{kind} AS {ACTION}"]
    return expressions + [
        f"CAST(coalesce({flags.get(name, 'false')}, false) AS INT) AS {_flag(name)}" for name in _FLAGS
    ]


def row_values(alias: str, job_sql: LakeJobSql) -> dict[str, str]:
    """Return the current values of a target row."""
    return {name: f"{alias}.{quote(name)}" for name in job_sql.table}


def new_row(job_sql: LakeJobSql, **values: str) -> dict[str, str]:
    """Return the values of a target row that comes from the stage."""
    return {name: f"s.{quote(name)}" for name in job_sql.declared} | values | job_sql.metadata()


def action_columns(actions: DataFrame) -> list[str]:
    """Return the names of the target's columns in a frame of actions."""
    return [name for name in actions.columns if name not in OWN]


def _flag(name: str) -> str:
    return _PREFIX + name
