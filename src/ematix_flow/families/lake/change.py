"""What a load will do to a table, worked out in full before the table is touched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.write import Counts
from ematix_flow.families.frames import spark_type
from ematix_flow.families.lake.columns import Words
from ematix_flow.families.lake.place import LakePath, uri
from ematix_flow.families.lake.session import is_sail, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ACTION = "__flow_action"
WRITE, DELETE = "'write'", "'delete'"
_FLAGS = ("inserted", "updated", "closed", "deleted", "missing")
_PREFIX = "__flow_"
OWN = (ACTION, *(_PREFIX + name for name in _FLAGS))


@dataclass(frozen=True)
class Change:
    """Rows to append, rows to replace the table with, or actions to merge by the `match` columns."""

    how: str
    frame: DataFrame
    counts: Counts
    match: tuple[str, ...] = ()
    files: tuple[Path, ...] | None = None
    """Parquet files with the rows in the table's own types; None where they are not written yet."""


@dataclass(frozen=True)
class StageFolder:
    """The folder of one run and one table: staged rows and what is worked out from them, as Parquet."""

    path: LakePath

    def keep(self, name: str, frame: DataFrame, schema: str | None = None) -> DataFrame:
        """Write a frame once and return it as read from there; its `schema` is asked for unless it is given."""
        where = uri(self.path / name)
        frame.write.mode("overwrite").parquet(where)
        return frame.sparkSession.read.schema(schema or frame.schema).parquet(where)

    def keep_counted(
        self, name: str, frame: DataFrame, questions: Sequence[str], schema: str | None = None
    ) -> tuple[DataFrame, Mapping[str, Any]]:
        """Write a frame once, and return it with the answers to some aggregates, found while it is written."""
        from pyspark.sql import Observation
        from pyspark.sql.functions import expr

        if is_sail(frame.sparkSession):  # it observes nothing: the rows are read once more
            kept = self.keep(name, frame, schema)
            return kept, kept.selectExpr(*questions).collect()[0].asDict()
        watch = Observation()
        return self.keep(name, frame.observe(watch, *map(expr, questions)), schema), watch.get

    def keep_actions(self, actions: DataFrame) -> tuple[DataFrame, Tally]:
        """Write actions once, and return them with what they add up to."""
        kept, told = self.keep_counted("actions", actions, Tally.questions())
        return kept, Tally.told(told)


@dataclass(frozen=True)
class Tally:
    """What kept actions add up to."""

    inserted: int
    updated: int
    closed: int
    deleted: int
    missing: int

    @classmethod
    def questions(cls) -> list[str]:
        """Return the aggregates to ask actions for."""
        return [f"coalesce(sum({_flag(name)}), 0) AS `{name}`" for name in _FLAGS]

    @classmethod
    def told(cls, row: Mapping[str, Any]) -> Tally:
        """Return the tally of the answers."""
        return cls(**{name: int(row[name]) for name in _FLAGS})


@dataclass(frozen=True)
class Draft:
    """Actions on rows of these `columns`, by those of `match`, that have yet to be worked out.

    `counts` makes the load's counts of a tally, and of the number of rows that are `alive` in the table; it raises
    Brake where too many of these would go.
    """

    actions: DataFrame
    columns: tuple[str, ...]
    match: tuple[str, ...]
    alive: str
    counts: Callable[[Tally, Callable[[], int]], Counts]

    def worked_out(self, target: DataFrame, folder: StageFolder) -> Change:
        """Return the change with its actions written beside the table, for tables that are merged into."""
        kept, tally = folder.keep_actions(self.actions)
        return Change("merge", kept, self.counts(tally, lambda: target.where(self.alive).count()), self.match)


def image(words: Words, values: Mapping[str, str]) -> list[str]:
    """Expressions of a whole target row; columns without a value are NULL."""
    return [
        f"CAST({values.get(name, 'NULL')} AS {spark_type(words.column(name).type)}) AS {quote(name)}"
        for name in words.table
    ]


def completed(target: DataFrame, words: Words) -> DataFrame:
    """The target with every column it will have; a rehearsal adds none of them to the table itself."""
    there = set(target.columns)
    missing = [name for name in words.table if name not in there]
    added = [f"CAST(NULL AS {spark_type(words.column(name).type)}) AS {quote(name)}" for name in missing]
    return target.selectExpr("*", *added) if added else target


def action(kind: str, flags: Mapping[str, str]) -> list[str]:
    """Expressions that say what happens to a row and what it counts as; `kind` is SQL."""
    made = [f"{kind} AS {ACTION}"]
    return made + [f"CAST(coalesce({flags.get(name, 'false')}, false) AS INT) AS {_flag(name)}" for name in _FLAGS]


def row_of(alias: str, words: Words) -> dict[str, str]:
    """The values of a target row as they are."""
    return {name: f"{alias}.{quote(name)}" for name in words.table}


def new_row(words: Words, **values: str) -> dict[str, str]:
    """The values of a row that comes from the stage."""
    return {name: f"s.{quote(name)}" for name in words.declared} | values | words.metadata()


def rows_of(actions: DataFrame) -> list[str]:
    """Names of the target's columns in a frame of actions."""
    return [name for name in actions.columns if name not in OWN]


def _flag(name: str) -> str:
    return _PREFIX + name
