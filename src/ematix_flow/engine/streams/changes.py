"""Change data: messages as changes of rows, with what is wrong with a message, and counted as what they tell of."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.changes import CREATE, DELETE, READ, UPDATE
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.engine.streams.dead_letters import DeadLetters
from ematix_flow.engine.streams.decoding import Decoder
from ematix_flow.engine.streams.envelopes import (
    Envelope,
    as_object,
    envelope_of,
    found_at,
    kinds,
    member,
    milliseconds,
    operation,
    shown,
)
from ematix_flow.engine.streams.images import CHANGE
from ematix_flow.engine.streams.tables import HIDDEN
from ematix_flow.families.carry import refusing_sql
from ematix_flow.families.frames import JSON_AS_IT_IS
from ematix_flow.families.lake.session import quote, text
from ematix_flow.families.messages.decode import ERROR, EVENT_TS, RAW
from ematix_flow.families.messages.json_rows import text_of
from ematix_flow.families.messages.widening import distinct_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)
STAGE = "transform"
CREATES, UPDATES, DELETES = "cdc_creates_total", "cdc_updates_total", "cdc_deletes_total"
SKIPPED = "cdc_skipped_total"
_COUNTED = {CREATE: CREATES, READ: CREATES, UPDATE: UPDATES, DELETE: DELETES}
_SAID, _WRONG, _IMAGE, _WORD = "_flow_said", "_flow_wrong", "_flow_image", "_flow_word"
_OWN = (CHANGE, HIDDEN, RAW, EVENT_TS, ERROR, _IMAGE)


@dataclass
class Changes:
    """Between decoding and the targets: every message as the row that it tells of, and what happened to it."""

    spec: StreamSpec
    decoder: Decoder
    figures: MutableMapping[str, int]
    """What was counted, by the names of metrics."""
    is_a_stage: bool = False
    envelope: Envelope = field(init=False)
    _counted: tuple[int, Mapping[str, int]] = field(default=(-1, {}), init=False)
    _names: list[str] = field(default_factory=list, init=False)
    _strange: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        if self.spec.cdc is None:
            raise AssertionError("the stream declares no change data")
        self.envelope = envelope_of(self.spec.cdc)

    def apply(
        self,
        given: Sequence[DataFrame],
        number: int,
        open_until: ExitStack,
        dead: DeadLetters | None,
        staged: Callable[[], None],
    ) -> DataFrame:
        """The changes among the messages: a column for everything that rows have, and one that says what happened."""
        (rows,) = given
        told = self._told(rows).persist()
        open_until.callback(told.unpersist)
        self._count(number, told)
        if dead is not None:
            told = dead.split(told, _WRONG, stage=STAGE)
        else:
            told = told.where(f"CASE WHEN {_WRONG} IS NULL THEN true ELSE {_refusal()} END").drop(_WRONG)
        kept = [name for name in (CHANGE, RAW, HIDDEN) if name in told.columns]
        names = distinct_names(self._names, _OWN)
        made = [f"{member(_IMAGE, name)} AS {quote(column)}" for name, column in zip(self._names, names, strict=True)]
        return told.where(f"{CHANGE} IS NOT NULL").selectExpr(*made, *kept)

    def pass_by(self, number: int) -> None:
        """Nothing is remembered."""

    def _told(self, rows: DataFrame) -> DataFrame:
        """Message by message: the change, or what is wrong; a message that is to be left out has neither."""
        if self.decoder.gives_text:
            said = rows.withColumn(_SAID, text_of(RAW, framed=self.decoder.is_framed))
        else:
            said = rows.selectExpr("*", f"{self._written(rows)} AS {_SAID}")
        kept = [quote(name) for name in (RAW, HIDDEN) if name in rows.columns]
        key = "CAST(_source.key AS STRING)" if HIDDEN in rows.columns else "CAST(NULL AS STRING)"
        whole = said.selectExpr(*kept, _SAID, f"{as_object(_SAID)} AS whole", f"try_validate_utf8({key}) AS key_text")
        event = whole.selectExpr(*kept, "key_text", *self._unwrapped(has_bytes=RAW in rows.columns))
        parts = event.selectExpr(
            *kept, "is_empty", "event", "schema_text",
            f"{found_at('event', self.envelope.operation)} AS {_WORD}",
            f"{self._at(self.envelope.after)} AS after_text", f"{self._at(self.envelope.before)} AS before_text",
            f"{milliseconds(self._at(self.envelope.moment))} AS ms", f"{self.envelope.position} AS position",
            f"coalesce({self._at(self.envelope.key)}, key_text) AS key_text",
        )  # fmt: skip
        named = parts.selectExpr(
            "* EXCEPT (after_text, before_text)", f"{as_object('after_text')} AS after",
            f"{as_object('before_text')} AS before", f"{self._row_text()} AS row_text",
            f"{operation(_WORD, self.envelope.words)} AS op", f"{_key_object()} AS `key`",
        )  # fmt: skip
        return self._judged(named, kept)

    def _row_text(self) -> str:
        """The row as it is written, from which a table that is not there yet learns its types."""
        may_be_new = any(getattr(target, "load", None) is None for target in self.spec.targets)
        return "coalesce(after_text, before_text)" if may_be_new else "CAST(NULL AS STRING)"

    def _written(self, rows: DataFrame) -> str:
        """What was decoded by a schema, as the JSON that it would be."""
        own = ", ".join(quote(name) for name in rows.columns if name not in (HIDDEN, RAW, EVENT_TS))
        options = ", ".join(f"{text(name)}, {text(value)}" for name, value in JSON_AS_IT_IS.items())
        made = f"to_json(struct({own}), map({options}))"
        return f"CASE WHEN {RAW} IS NOT NULL THEN {made} END" if RAW in rows.columns else made

    def _unwrapped(self, *, has_bytes: bool) -> list[str]:
        """The message itself; one without anything to tell is empty."""
        empty = f"({RAW} IS NULL OR length({RAW}) = 0)" if has_bytes else f"{_SAID} IS NULL"
        if not self.envelope.is_wrapped:
            return [f"{empty} AS is_empty", "whole AS event", "CAST(NULL AS STRING) AS schema_text"]
        wrapped = f"{found_at('whole', self.envelope.operation)} IS NULL AND map_contains_key(whole, 'payload')"
        inner = member("whole", "payload")
        return [
            f"coalesce({empty} OR ({wrapped} AND {inner} IS NULL), false) AS is_empty",
            f"CASE WHEN {wrapped} THEN {as_object(inner)} ELSE whole END AS event",
            f"CASE WHEN {wrapped} THEN {member('whole', 'schema')} END AS schema_text",
        ]

    def _at(self, path: str | None) -> str:
        return found_at("event", path) if path else "CAST(NULL AS STRING)"

    def _judged(self, parts: DataFrame, kept: list[str]) -> DataFrame:
        after, path = self.envelope.after, self.envelope.operation
        wrong = (
            "CASE WHEN is_empty THEN NULL "
            "WHEN event IS NULL THEN 'the message is no change: it is not a JSON object' "
            f"WHEN {_WORD} IS NULL THEN {text(f'the message is no change: it has no {path!r}')} "
            f"WHEN op IS NULL OR op = '{DELETE}' THEN NULL "
            f"WHEN after IS NULL THEN {text(f'the message is no change: it has no row in {after!r}')} END"
        )
        change = (
            "struct(op, ms, position, "
            f"CASE WHEN schema_text IS NOT NULL THEN {kinds('schema_text')} END AS kinds, before, `key`, "
            "CASE WHEN `key` IS NULL THEN key_text END AS scalar, row_text)"
        )
        image = f"CASE WHEN op = '{DELETE}' THEN coalesce(after, before) ELSE after END"
        judged = parts.selectExpr("*", f"{wrong} AS {_WRONG}")
        good = f"NOT is_empty AND {_WRONG} IS NULL AND op IS NOT NULL"
        strange = f"CASE WHEN NOT is_empty AND {_WRONG} IS NULL AND op IS NULL THEN {_WORD} END"
        return judged.selectExpr(
            *kept, _WRONG, f"CASE WHEN {good} THEN {change} END AS {CHANGE}", f"CASE WHEN {good} THEN {image} END AS {_IMAGE}",
            f"{strange} AS {_WORD}",
        )  # fmt: skip

    def _count(self, number: int, told: DataFrame) -> None:
        """One look at the micro-batch; a try that comes again is counted once."""
        sums = [f"count_if({CHANGE}.op = '{one}') AS `{one}`" for one in _COUNTED]
        facts: Any = told.selectExpr(
            *sums,
            f"count_if({CHANGE} IS NULL AND {_WRONG} IS NULL) AS skipped",
            f"array_distinct(flatten(collect_set(map_keys({_IMAGE})))) AS names",
            f"slice(collect_set({_WORD}), 1, 20) AS words",
        ).collect()[0]
        found = dict.fromkeys((CREATES, UPDATES, DELETES, SKIPPED), 0)
        for one, name in _COUNTED.items():
            found[name] += int(facts[one])
        found[SKIPPED] += int(facts["skipped"])
        before = self._counted[1] if self._counted[0] == number else {}
        for name, count in found.items():
            self.figures[name] = self.figures.get(name, 0) + count - before.get(name, 0)
        self._counted = (number, found)
        self._names += sorted(name for name in facts["names"] if name not in self._names)
        self._warn(set(facts["words"]) - self._strange)

    def _warn(self, new: set[str]) -> None:
        self._strange |= new
        if new:
            _log.warning(
                "%s leaves out messages whose operation is none that is known: %s", self.spec.name, shown(sorted(new))
            )


def _key_object() -> str:
    """The message's key, where it is an object; Connect wraps it like the message."""
    whole = as_object("key_text")
    inner = as_object(member(whole, "payload"))
    return f"CASE WHEN map_contains_key({whole}, 'schema') THEN coalesce({inner}, {whole}) ELSE {whole} END"


def _refusal() -> str:
    return refusing_sql(
        _WRONG,
        before="",
        after="",
        most=1000,
        hint='is cdc= right about the envelope? Or say transform_on_error="dlq" to set such messages aside',
    )
