"""Change data: converts messages to changes of rows, finds messages that are no changes, and counts operations."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.cdc import CREATE, DELETE, READ, UPDATE
from ematix_flow.dataplane.type_mapping import JSON_AS_IT_IS
from ematix_flow.declare.streams.spec import StreamSpec, TableTarget
from ematix_flow.foundation.errors import BadValue, PlanError
from ematix_flow.messages.decode import ERROR, EVENT_TS, RAW
from ematix_flow.messages.decoding_state import KINDS
from ematix_flow.messages.json_rows import text_of
from ematix_flow.messages.type_widening import distinct_names
from ematix_flow.sql.spark_text import quote, text_literal
from ematix_flow.streaming.cdc.envelopes import (
    ChangeEnvelope,
    as_object,
    envelope_of,
    member,
    milliseconds,
    operation,
    shown_words,
    value_at,
)
from ematix_flow.streaming.cdc.row_images import CHANGE, UNAVAILABLE_COLUMNS
from ematix_flow.streaming.cdc.values import IS_UNAVAILABLE, column_kinds, decode_image
from ematix_flow.streaming.dlq.letters import FailedRows, split_failed
from ematix_flow.streaming.runtime.decoding import Decoder
from ematix_flow.streaming.runtime.processing import BatchRows, ProcessedRows, StagedProcessing
from ematix_flow.streaming.runtime.table_writer import HIDDEN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)
STAGE = "transform"
CREATES, UPDATES, DELETES = "cdc_creates_total", "cdc_updates_total", "cdc_deletes_total"
SKIPPED = "cdc_skipped_total"
_COUNTED = {CREATE: CREATES, READ: CREATES, UPDATE: UPDATES, DELETE: DELETES}
_TEXT, _WRONG, _IMAGE, _WORD = "_flow_text", "_flow_wrong", "_flow_image", "_flow_word"
_TABLE = "_flow_table"
_OWN = (CHANGE, HIDDEN, RAW, EVENT_TS, ERROR, _IMAGE)


@dataclass(frozen=True)
class _BatchSummary:
    """The summary of one micro-batch."""

    changes: int
    wrong: str | None
    """The error of one of the messages that are no changes."""
    tables: Sequence[str]
    unavailable: list[str]
    """The columns whose value a message leaves out."""
    figures: Mapping[str, int]
    """Counts by metric name."""


@dataclass(frozen=True)
class StagedChanges(StagedProcessing):
    """The changes of one micro-batch; None when it has none."""

    changes: DataFrame | None = None
    figures: Mapping[str, int] = field(default_factory=dict)


@dataclass
class ChangeProcessor:
    """The step between decoding and targets that converts every message to its row and the change of that row."""

    spec: StreamSpec
    decoder: Decoder
    is_a_stage: bool = False
    envelope: ChangeEnvelope = field(init=False)
    _names: list[str] = field(default_factory=list, init=False)
    _strange: set[str] = field(default_factory=set, init=False)
    _tables: set[str] = field(default_factory=set, init=False)
    """The source's tables that changes came from."""

    def __post_init__(self) -> None:
        if self.spec.cdc is None:
            raise AssertionError("the stream declares no change data")
        self.envelope = envelope_of(self.spec.cdc)

    def stage(self, batch: BatchRows) -> StagedChanges:
        """Return the changes: a column for every field of the rows, and one for the change.

        Raise BadValue at the first message that is no change, unless such messages are split off.
        """
        (rows,) = batch.frames
        change_rows = self._change_rows(rows).persist()
        batch.open_until.callback(change_rows.unpersist)
        seen = self._summary(change_rows)
        failed: tuple[FailedRows, ...] = ()
        if batch.splits:
            change_rows, wrong = split_failed(change_rows, _WRONG, stage=STAGE)
            failed = (wrong,)
        elif seen.wrong is not None:
            raise BadValue(seen.wrong, hint=_HINT)
        if not seen.changes:
            return StagedChanges(batch, failed, figures=seen.figures)
        self._refuse_other_tables(seen.tables)
        return StagedChanges(batch, failed, changes=self._selected(change_rows, seen), figures=seen.figures)

    def commit(self, staged: StagedChanges) -> ProcessedRows:
        """Return the changes; there is no state."""
        return ProcessedRows(staged.changes, figures=staged.figures)

    def _selected(self, change_rows: DataFrame, seen: _BatchSummary) -> DataFrame:
        from pyspark.sql import functions as f

        kept = [name for name in (RAW, HIDDEN) if name in change_rows.columns]
        names = distinct_names(self._names, _OWN)
        selected = [
            f"{member(_IMAGE, name)} AS {quote(column)}" for name, column in zip(self._names, names, strict=True)
        ]
        changes = change_rows.where(f"{CHANGE} IS NOT NULL").selectExpr(*selected, CHANGE, *kept)
        if not seen.unavailable:
            return changes
        return changes.withColumn(CHANGE, f.col(CHANGE).alias(CHANGE, metadata={UNAVAILABLE_COLUMNS: seen.unavailable}))

    def _refuse_other_tables(self, tables: Sequence[str]) -> None:
        """Raise for changes of other source tables: rows with the same key would overwrite each other."""
        allowed = self.spec.cdc.source_tables if self.spec.cdc is not None else None
        self._tables.update(tables)
        if allowed is not None:
            others = sorted(self._tables - set(allowed))
            if others:
                raise PlanError(
                    f"{self.spec.name} got changes of {shown_words(others)}, which source_tables= does not name",
                    hint="add the table to source_tables=, or read only the topics of those that it names",
                    where=self.spec.where,
                )
        elif len(self._tables) > 1:
            raise PlanError(
                f"{self.spec.name} got changes of several source tables ({shown_words(sorted(self._tables))}) for one target: rows of "
                "the same key would overwrite each other",
                hint="declare one stream for each; or, where their keys never meet, name them: "
                f"CDC(source_tables={sorted(self._tables)!r})",
                where=self.spec.where,
            )

    def skip_batch(self, number: int) -> None:
        """Do nothing: there is no state."""

    def _change_rows(self, rows: DataFrame) -> DataFrame:
        """Return every message with its change or its error; a message that is to be left out has neither."""
        if self.decoder.gives_text:
            with_text = rows.withColumn(_TEXT, text_of(RAW, framed=self.decoder.is_framed))
        else:
            with_text = rows.selectExpr("*", f"{self._written(rows)} AS {_TEXT}")
        kept = [quote(name) for name in (RAW, HIDDEN) if name in rows.columns]
        key = "CAST(_source.key AS STRING)" if HIDDEN in rows.columns else "CAST(NULL AS STRING)"
        kinds = KINDS if KINDS in rows.columns else "CAST(NULL AS MAP<STRING, STRING>)"
        whole = with_text.selectExpr(
            *kept, _TEXT, f"{as_object(_TEXT)} AS whole", f"try_validate_utf8({key}) AS key_text", f"{kinds} AS kinds"
        )
        event = whole.selectExpr(*kept, "kinds", "key_text", *self._unwrapped(has_bytes=RAW in rows.columns))
        parts = event.selectExpr(
            *kept, "is_empty", "event",
            f"{value_at('event', self.envelope.operation)} AS {_WORD}",
            f"{self._at(self.envelope.after)} AS after_text", f"{self._at(self.envelope.before)} AS before_text",
            f"{milliseconds(self._at(self.envelope.moment))} AS ms", f"{self.envelope.position} AS position",
            f"coalesce({self._at(self.envelope.key)}, key_text) AS key_text", f"{self.envelope.table} AS {_TABLE}",
            f"CASE WHEN schema_text IS NOT NULL THEN {column_kinds('schema_text')} ELSE kinds END AS kinds",
        )  # fmt: skip
        named = parts.selectExpr(
            "* EXCEPT (after_text, before_text)", f"{decode_image(as_object('after_text'), 'kinds')} AS after",
            f"{decode_image(as_object('before_text'), 'kinds')} AS before", f"{self._row_text()} AS row_text",
            f"{operation(_WORD, self.envelope.words)} AS op", f"{decode_image(_key_object(), 'kinds')} AS `key`",
        )  # fmt: skip
        return self._with_errors(named, kept)

    def _row_text(self) -> str:
        """Return SQL for the row as it was written, from which the types of a new table are inferred."""
        may_be_new = any(not isinstance(target, TableTarget) or target.load is None for target in self.spec.targets)
        return "coalesce(after_text, before_text)" if may_be_new else "CAST(NULL AS STRING)"

    def _written(self, rows: DataFrame) -> str:
        """Return SQL for the JSON of a message that was decoded by a schema."""
        own = ", ".join(quote(name) for name in rows.columns if name not in (HIDDEN, RAW, EVENT_TS, KINDS))
        options = ", ".join(f"{text_literal(name)}, {text_literal(value)}" for name, value in JSON_AS_IT_IS.items())
        json_text = f"to_json(struct({own}), map({options}))"
        return f"CASE WHEN {RAW} IS NOT NULL THEN {json_text} END" if RAW in rows.columns else json_text

    def _unwrapped(self, *, has_bytes: bool) -> list[str]:
        """Return SQL columns for the message without its Connect wrapper; a message without content is empty."""
        empty = f"({RAW} IS NULL OR length({RAW}) = 0)" if has_bytes else f"{_TEXT} IS NULL"
        if not self.envelope.is_wrapped:
            return [f"{empty} AS is_empty", "whole AS event", "CAST(NULL AS STRING) AS schema_text"]
        wrapped = f"{value_at('whole', self.envelope.operation)} IS NULL AND map_contains_key(whole, 'payload')"
        inner = member("whole", "payload")
        return [
            f"coalesce({empty} OR ({wrapped} AND {inner} IS NULL), false) AS is_empty",
            f"CASE WHEN {wrapped} THEN {as_object(inner)} ELSE whole END AS event",
            f"CASE WHEN {wrapped} THEN {member('whole', 'schema')} END AS schema_text",
        ]

    def _at(self, path: str | None) -> str:
        return value_at("event", path) if path else "CAST(NULL AS STRING)"

    def _with_errors(self, parts: DataFrame, kept: list[str]) -> DataFrame:
        after, path = self.envelope.after, self.envelope.operation
        wrong = (
            "CASE WHEN is_empty THEN NULL "
            "WHEN event IS NULL THEN 'the message is no change: it is not a JSON object' "
            f"WHEN {_WORD} IS NULL THEN concat({text_literal(f'the message is no change: it has no {path!r}')}, {_RESEMBLES}) "
            f"WHEN op IS NULL OR op = '{DELETE}' THEN NULL "
            f"WHEN after IS NULL THEN {text_literal(f'the message is no change: it has no row in {after!r}')} END"
        )
        change = (
            "struct(op, ms, position, kinds, before, `key`, "
            "CASE WHEN `key` IS NULL THEN key_text END AS scalar, row_text)"
        )
        image = f"CASE WHEN op = '{DELETE}' THEN coalesce(after, before) ELSE after END"
        judged = parts.selectExpr("*", f"{wrong} AS {_WRONG}")
        good = f"NOT is_empty AND {_WRONG} IS NULL AND op IS NOT NULL"
        strange = f"CASE WHEN NOT is_empty AND {_WRONG} IS NULL AND op IS NULL THEN {_WORD} END"
        return judged.selectExpr(
            *kept, _WRONG, f"CASE WHEN {good} THEN {change} END AS {CHANGE}", f"CASE WHEN {good} THEN {image} END AS {_IMAGE}",
            f"{strange} AS {_WORD}", f"CASE WHEN {good} THEN {_TABLE} END AS {_TABLE}",
        )  # fmt: skip

    def _summary(self, change_rows: DataFrame) -> _BatchSummary:
        """Summarize the micro-batch in one job."""
        sums = [f"count_if({CHANGE}.op = '{one}') AS `{one}`" for one in _COUNTED]
        left_out = f"map_filter({_IMAGE}, (name, value) -> value IN {IS_UNAVAILABLE})"
        facts: Any = change_rows.selectExpr(
            *sums,
            f"count_if({CHANGE} IS NULL AND {_WRONG} IS NULL) AS skipped",
            f"array_distinct(flatten(collect_set(map_keys({_IMAGE})))) AS names",
            f"slice(collect_set({_WORD}), 1, 20) AS words",
            f"count({CHANGE}) AS changes",
            f"first({_WRONG}, true) AS wrong",
            f"slice(array_sort(collect_set({_TABLE})), 1, 20) AS tables",
            f"array_distinct(flatten(collect_set(map_keys({left_out})))) AS unavailable",
        ).collect()[0]
        counts = dict.fromkeys((CREATES, UPDATES, DELETES, SKIPPED), 0)
        for one, name in _COUNTED.items():
            counts[name] += int(facts[one])
        counts[SKIPPED] += int(facts["skipped"])
        self._names += sorted(name for name in facts["names"] if name not in self._names)
        self._warn(set(facts["words"]) - self._strange)
        return _BatchSummary(
            int(facts["changes"]), facts["wrong"], facts["tables"], sorted(facts["unavailable"]), counts
        )

    def _warn(self, new: set[str]) -> None:
        self._strange |= new
        if new:
            _log.warning(
                "%s leaves out messages whose operation is none that is known: %s",
                self.spec.name,
                shown_words(sorted(new)),
            )


def _key_object() -> str:
    """Return SQL for the message's key where it is an object; Connect wraps it like the message."""
    whole = as_object("key_text")
    inner = as_object(member(whole, "payload"))
    return f"CASE WHEN map_contains_key({whole}, 'schema') THEN coalesce({inner}, {whole}) ELSE {whole} END"


_HINT = 'is cdc= right about the envelope? Or say transform_on_error="dlq" to set such messages aside'
_RESEMBLES = (
    "CASE WHEN map_contains_key(event, 'op') AND map_contains_key(event, 'source') THEN ' (it looks like Debezium\\'s)' "
    "WHEN map_contains_key(event, 'type') AND map_contains_key(event, 'data') THEN ' (it looks like Maxwell\\'s)' "
    "WHEN map_contains_key(event, '__op') OR map_contains_key(event, '__deleted') THEN "
    "' (it was flattened by ExtractNewRecordState, a transform to be left out of the connector)' ELSE '' END"
)
"""SQL over the map `event`: which other envelope the message seems to have."""
