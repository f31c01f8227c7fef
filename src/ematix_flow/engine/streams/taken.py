"""What targets have of a micro-batch that is done again, and whose dead letters are therefore decided.

A micro-batch that an earlier try left unfinished may come to other bad rows this time: somebody corrected the SQL, a lookup
or the table meanwhile. For a target that has not the micro-batch this try decides; for one that has it the earlier one did.
A letter that was for all targets is then one for each of those that are on its side.
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
    """What one target has: everything, nothing, or what came from some partitions of the source."""

    whole: bool = False
    parts: frozenset[tuple[str, int]] = frozenset()
    """Topics and partitions."""

    def has(self, letter: Letter) -> bool:
        """Whether the target decided about this letter's message."""
        return self.whole or (letter.source_id or "", letter.place.get("partition")) in self.parts

    @property
    def condition(self) -> str:
        """The same in Spark's words, about records."""
        if self.whole:
            return "true"
        place = "get_json_object(position, '$.partition')"
        each = [f"(source_id = {text(topic)} AND {place} = '{number}')" for topic, number in sorted(self.parts)]
        return f"coalesce({' OR '.join(each)}, false)" if each else "false"


Having = Mapping[str, Taken]
"""By the names of the stream's targets."""
NOTHING, EVERYTHING = Taken(), Taken(whole=True)


def is_done(having: Having) -> bool:
    """Whether every target has all of it."""
    return bool(having) and all(item.whole for item in having.values())


def still_open(records: DataFrame, having: Having) -> DataFrame:
    """The records that some target has not decided about."""
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
    """The id of the letter that one target gets of one that was for all."""
    return hashlib.sha256(f"{letter}/{target}".encode()).hexdigest()


def kept_for(letter: Letter, having: Having) -> list[str] | None:
    """The targets for which a letter of the earlier try holds; None when it holds for all that it was for."""
    meant = [name for name in having if letter.target in (None, name)]
    kept = [name for name in meant if having[name].has(letter)]
    return None if len(kept) == len(meant) else kept
