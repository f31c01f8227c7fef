"""Translates errors in Spark tasks, carries them to the driver as text, and casts strictly in SQL."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ematix_flow.dataplane import progress
from ematix_flow.dataplane.spark_session import is_active_session_sail
from ematix_flow.declare.types import Column
from ematix_flow.foundation import errors
from ematix_flow.foundation.errors import FlowError, RunFailed
from ematix_flow.sql.spark_text import quote

_MARK = "FLOW_ERROR "
BAD_VALUE = "FLOW_BAD_VALUE"
NO_UNIT, NO_SCALE = " (a number without its unit)", " (bytes in base64 without their scale?)"
"""Suffixes for a CDC value whose message lacks the metadata needed to interpret it."""
_CARRIED = re.compile(re.escape(_MARK) + r"(\{.*?\})(?=\s*$|\s*\n)", re.MULTILINE)
_T = TypeVar("_T")


class CarriedError(RuntimeError):
    """A translated error as text, because only text is propagated from a Python worker."""


def reading_task(
    work: Callable[[Any], Iterator[_T]], translate: Callable[[Exception], FlowError]
) -> Callable[[Any], Iterator[_T]]:
    """Wrap a task function of a source: its driver errors become FlowErrors, and the rows it reads are counted."""
    counter = progress.TaskCounter.of(progress.READ)
    return _guarded(lambda batches: counter.passing(work(batches)), translate)


def staging_task(
    work: Callable[[Any], Iterator[_T]], translate: Callable[[Exception], FlowError]
) -> Callable[[Any], Iterator[_T]]:
    """Wrap a task function of a sink: its driver errors become FlowErrors, and the rows it receives are counted."""
    counter = progress.TaskCounter.of(progress.STAGED)
    return _guarded(lambda batches: work(counter.passing(batches)), translate)


def _guarded(
    work: Callable[[Any], Iterator[_T]], translate: Callable[[Exception], FlowError]
) -> Callable[[Any], Iterator[_T]]:
    def run(batches: Any) -> Iterator[_T]:
        try:
            yield from work(batches)
        except Exception as exc:
            raise to_carried_error(exc, translate) from exc

    return run


def to_carried_error(exc: Exception, translate: Callable[[Exception], FlowError]) -> CarriedError:
    """Return an exception of a task, translated and encoded as text."""
    if isinstance(exc, CarriedError):
        return exc
    if BAD_VALUE in str(exc) or _MARK in str(exc):  # already encoded, by an engine that runs in this process
        return CarriedError(str(exc))
    error = exc if isinstance(exc, FlowError) else translate(exc)
    text = json.dumps({"type": type(error).__name__, "what": error.what, "hint": error.hint})
    return CarriedError(_MARK + text)


def raise_bad_value_sql(value: str, *, before: str, after: str, hint: str, most: int = 80) -> str:
    """Return a Spark expression that fails the job with BadValue: `before`, the row's value (cut), `after`."""
    before, after, hint = (part.replace("\\", "\\\\").replace("'", "\\'") for part in (before, after, hint))
    part = f"concat('{before}', left(CAST({value} AS STRING), {most}), '{after}')"
    kept = f"to_json(named_struct('type', 'BadValue', 'what', {part}, 'hint', '{hint}'))"
    return f"raise_error(concat('{_MARK}', {kept}, '\\n'))"


def carried_error_in(text: str) -> FlowError | None:
    """Return the FlowError encoded in a Spark exception's text, None when there is none."""
    match = _CARRIED.search(text)
    if match is None:
        return None
    try:
        kept = json.loads(match.group(1))
    except ValueError:
        return None
    kind = getattr(errors, kept["type"], RunFailed)
    error: FlowError = kind(kept["what"], hint=kept["hint"])
    return error


def strict_value(column: Column, valid: str, value: str) -> str:
    """Return SQL that gives `value` where `valid` holds, NULL for a NULL column, and otherwise raises BadValue."""
    name = quote(column.name)
    label = f"{BAD_VALUE}|{column.name}|{column.type}|".replace("\\", "").replace("'", "")
    failure = f"raise_error(concat('{label}', left({_shown_value(name)}, 80)))"
    return f"CASE WHEN {name} IS NULL THEN NULL WHEN {valid} THEN {value} ELSE {failure} END"


def _shown_value(name: str) -> str:
    """Return SQL for the value as shown in a message, with Spark's spelling of infinity."""
    text = f"CAST({name} AS STRING)"
    if is_active_session_sail():
        text = (
            f"CASE WHEN typeof({name}) IN ('float', 'double') THEN replace({text}, 'inf', 'Infinity') ELSE {text} END"
        )
    return text
