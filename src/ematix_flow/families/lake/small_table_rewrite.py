"""Rewrites a small table: all rows after a load are written and counted by one Spark job.

Rows of the table, actions and duplicate keys of the stage are combined in one partition. Window functions over the
`match` columns determine which rows stay, so that no shuffle is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.families.lake.observed import observed
from ematix_flow.families.lake.table_change import ACTION, OWN, ActionCounts, ChangeDraft
from ematix_flow.foundation.lazy_imports import f
from ematix_flow.sql.spark_text import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

PART = "__flow_part"
OLD, NEW = "old", "new"  # rows of keys that the table has, and of other keys
_SIDE, _ROWS, _ACTIONS = "__flow_side", "__flow_rows", "__flow_actions"
_TABLE, _ACTED, _TWICE = "table", "acted", "twice"
_STAYS = f"(({_SIDE} = '{_TABLE}' AND {_ACTIONS} = 0) OR ({_SIDE} = '{_ACTED}' AND {ACTION} = 'write'))"


@dataclass(frozen=True)
class RewriteResult:
    """The counts of a rewrite: `alive` rows before it, `twice` duplicate keys in the stage, `touched` rows changed.

    If `unclear` is not 0, the files must not be used: an action matches several rows or other actions, or a NOT NULL
    column would be NULL.
    """

    tally: ActionCounts
    alive: int
    twice: int
    touched: int
    unclear: int

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> RewriteResult:
        """Return the result from the observed metrics."""
        return cls(
            ActionCounts.from_row(row), *(int(row[f"n_{name}"]) for name in ("alive", "twice", "touched", "unclear"))
        )


def rewrite_rows(
    target: DataFrame | None,
    draft: ChangeDraft,
    columns: StructType,
    *,
    twice: DataFrame | None = None,
    keys: Sequence[str] = (),
) -> tuple[DataFrame, Callable[[], RewriteResult]]:
    """Return every row of the table after the draft's actions, and a function that gives the counts after the write.

    The column PART separates existing rows, which need not be written if none of them changes, from new ones. The
    `columns` are those of the table; one that the actions lack keeps its value. `twice` has the duplicate `keys`. The
    `target` is None where the table has no rows.
    """
    below = _side(draft.actions, _ACTED, columns, (*draft.columns, *OWN))
    if target is not None:
        below = _side(target, _TABLE, columns, columns.names).union(below)
    if twice is not None:
        below = below.union(_side(twice, _TWICE, columns, keys))
    group = f"OVER (PARTITION BY {', '.join(quote(name) for name in draft.match)})"
    grouped = below.coalesce(1).selectExpr(
        "*", f"count_if({_SIDE} = '{_TABLE}') {group} AS {_ROWS}", f"count_if({_SIDE} = '{_ACTED}') {group} AS {_ACTIONS}",
        *(f"first({quote(name)}, true) {group} AS {_before(name)}" for name in _missing_rows(draft, columns)),
    )  # fmt: skip
    counted, results = observed(grouped, _questions(draft, columns), lambda: grouped)
    part = f"IF({_SIDE} = '{_ACTED}' AND {_ROWS} = 0, '{NEW}', '{OLD}') AS {PART}"
    return counted.where(_STAYS).selectExpr(*_values(draft, columns), part), lambda: RewriteResult.from_row(results())


def _side(frame: DataFrame, side: str, columns: StructType, present: Sequence[str]) -> DataFrame:
    """Return the rows with the columns and types of the table; missing columns are NULL.

    `frame.columns` is not read, because on a remote engine that is a request to the server.
    """
    kinds: list[tuple[str, Any]] = [(field.name, field.dataType) for field in columns.fields]
    kinds += [(name, "string" if name == ACTION else "int") for name in OWN]
    selected = [(f.col(quote(name)) if name in present else f.lit(None)).cast(kind).alias(name) for name, kind in kinds]
    return frame.select(*selected, f.lit(side).alias(_SIDE))


def _missing_rows(draft: ChangeDraft, columns: StructType) -> list[str]:
    return [field.name for field in columns.fields if field.name not in draft.columns]


def _values(draft: ChangeDraft, columns: StructType) -> list[str]:
    kept = set(_missing_rows(draft, columns))
    return [
        f"IF({_SIDE} = '{_ACTED}', {_before(name)}, {quote(name)}) AS {quote(name)}" if name in kept else quote(name)
        for name in (field.name for field in columns.fields)
    ]


def _questions(draft: ChangeDraft, columns: StructType) -> list[str]:
    acted = f"{_SIDE} = '{_ACTED}'"
    unclear = [f"({acted} AND ({_ACTIONS} > 1 OR {_ROWS} > 1))", *_missing(draft, columns)]
    return [
        *ActionCounts.questions(),
        f"count_if({_SIDE} = '{_TABLE}' AND {draft.alive}) AS `n_alive`",
        f"count_if({_SIDE} = '{_TWICE}') AS `n_twice`",
        f"count_if({acted} AND {_ROWS} > 0) AS `n_touched`",
        f"count_if({' OR '.join(unclear)}) AS `n_unclear`",
    ]


def _missing(draft: ChangeDraft, columns: StructType) -> Sequence[str]:
    kept = set(_missing_rows(draft, columns))
    required = [field.name for field in columns.fields if not field.nullable]
    return [f"({_STAYS} AND {_before(name) if name in kept else quote(name)} IS NULL)" for name in required]


def _before(name: str) -> str:
    return quote(f"__flow_before_{name}")
