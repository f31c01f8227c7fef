"""Which part of a repeated micro-batch each target has committed, and whose dead letters are therefore settled."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.sql.spark_text import text_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ematix_flow.streaming.dlq.dead_letter import DeadLetter


@dataclass(frozen=True)
class CommitCoverage:
    """The part of a micro-batch that one target has: everything, nothing, or that of some partitions of the source."""

    whole: bool = False
    parts: frozenset[tuple[str, int]] = frozenset()
    """Topics and partitions."""

    def has(self, letter: DeadLetter) -> bool:
        """Return whether the target has committed this letter's message."""
        return self.whole or (letter.source_id or "", letter.place.get("partition")) in self.parts

    @property
    def condition(self) -> str:
        """Return the same test as a Spark SQL condition over records."""
        if self.whole:
            return "true"
        place = "get_json_object(position, '$.partition')"
        each = [f"(source_id = {text_literal(topic)} AND {place} = '{number}')" for topic, number in sorted(self.parts)]
        return f"coalesce({' OR '.join(each)}, false)" if each else "false"


CoverageByTarget = Mapping[str, CommitCoverage]
"""Coverage by the name of the target."""
NOTHING, EVERYTHING = CommitCoverage(), CommitCoverage(whole=True)


def is_fully_covered(coverage: CoverageByTarget) -> bool:
    """Return whether every target has the whole micro-batch."""
    return bool(coverage) and all(item.whole for item in coverage.values())


def uncovered_records(records: DataFrame, coverage: CoverageByTarget) -> DataFrame:
    """Return the records that some target has not decided about, split by target where some have."""
    if all(item == NOTHING for item in coverage.values()):
        return records
    each = [f"CASE WHEN NOT {item.condition} THEN {text_literal(name)} END" for name, item in coverage.items()]
    waiting = f"filter(array({', '.join(each)}), name -> name IS NOT NULL)"
    meant = (
        f"CASE WHEN target IS NOT NULL THEN filter(array(target), name -> array_contains({waiting}, name)) "
        f"WHEN size({waiting}) = {len(each)} THEN array(CAST(NULL AS STRING)) ELSE {waiting} END"
    )
    exploded = records.selectExpr("*", f"explode({meant}) AS meant")
    others = [name for name in records.columns if name not in ("id", "target")]
    own_id = "CASE WHEN target <=> meant THEN id ELSE sha2(concat(id, '/', meant), 256) END AS id"
    return exploded.selectExpr(own_id, "meant AS target", *others).select(*records.columns)


def id_for(letter: str, target: str) -> str:
    """Return the id of one target's letter, split from a letter that was for all targets."""
    return hashlib.sha256(f"{letter}/{target}".encode()).hexdigest()


def targets_covering(letter: DeadLetter, coverage: CoverageByTarget) -> list[str] | None:
    """Return the targets for which an earlier try's letter stays valid; None when it does for all that it was for."""
    meant = [name for name in coverage if letter.target in (None, name)]
    kept = [name for name in meant if coverage[name].has(letter)]
    return None if len(kept) == len(meant) else kept
