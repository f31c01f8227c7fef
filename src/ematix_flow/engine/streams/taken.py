"""Commit coverage: which targets already have a retried micro-batch, so that its dead letters are decided.

A micro-batch that an earlier try left unfinished may produce other bad rows now: the SQL, a lookup or the table was
corrected meanwhile. For a target without the micro-batch this try decides; for one that has it, the earlier try did.
A letter that was for all targets is then split into one for each of the targets on its side.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.families.lake.session import text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ematix_flow.engine.streams.letter import Letter


@dataclass(frozen=True)
class Taken:
    """The part of a micro-batch that one target has: everything, nothing, or that of some partitions of the source."""

    whole: bool = False
    parts: frozenset[tuple[str, int]] = frozenset()
    """Topics and partitions."""

    def has(self, letter: Letter) -> bool:
        """Return whether the target has committed this letter's message."""
        return self.whole or (letter.source_id or "", letter.place.get("partition")) in self.parts

    @property
    def condition(self) -> str:
        """Return the same test as a Spark SQL condition over records."""
        if self.whole:
            return "true"
        place = "get_json_object(position, '$.partition')"
        each = [f"(source_id = {text(topic)} AND {place} = '{number}')" for topic, number in sorted(self.parts)]
        return f"coalesce({' OR '.join(each)}, false)" if each else "false"


Having = Mapping[str, Taken]
"""Coverage by the name of the target."""
NOTHING, EVERYTHING = Taken(), Taken(whole=True)


def is_done(having: Having) -> bool:
    """Return whether every target has the whole micro-batch."""
    return bool(having) and all(item.whole for item in having.values())


def still_open(records: DataFrame, having: Having) -> DataFrame:
    """Return the records that some target has not decided about, split by target where some have."""
    if all(item == NOTHING for item in having.values()):
        return records
    each = [f"CASE WHEN NOT {item.condition} THEN {text(name)} END" for name, item in having.items()]
    waiting = f"filter(array({', '.join(each)}), name -> name IS NOT NULL)"
    meant = (
        f"CASE WHEN target IS NOT NULL THEN filter(array(target), name -> array_contains({waiting}, name)) "
        f"WHEN size({waiting}) = {len(each)} THEN array(CAST(NULL AS STRING)) ELSE {waiting} END"
    )
    told = records.selectExpr("*", f"explode({meant}) AS meant")
    others = [name for name in records.columns if name not in ("id", "target")]
    own_id = "CASE WHEN target <=> meant THEN id ELSE sha2(concat(id, '/', meant), 256) END AS id"
    return told.selectExpr(own_id, "meant AS target", *others).select(*records.columns)


def id_for(letter: str, target: str) -> str:
    """Return the id of one target's letter, split from a letter that was for all targets."""
    return hashlib.sha256(f"{letter}/{target}".encode()).hexdigest()


def kept_for(letter: Letter, having: Having) -> list[str] | None:
    """Return the targets for which an earlier try's letter stays valid; None when it does for all that it was for."""
    meant = [name for name in having if letter.target in (None, name)]
    kept = [name for name in meant if having[name].has(letter)]
    return None if len(kept) == len(meant) else kept
