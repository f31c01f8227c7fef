"""Errors of Spark tasks: translated where the driver library raised them, carried as text, raised again on the driver."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ematix_flow.families import progress
from ematix_flow.foundation import errors
from ematix_flow.foundation.errors import FlowError, RunFailed

_MARK = "FLOW_ERROR "
BAD_VALUE = "FLOW_BAD_VALUE"
NO_UNIT, NO_SCALE = " (a number without its unit)", " (bytes in base64 without their scale?)"
"""What is put behind a value of a change whose meaning its message does not tell."""
_CARRIED = re.compile(re.escape(_MARK) + r"(\{.*?\})(?=\s*$|\s*\n)", re.MULTILINE)
_T = TypeVar("_T")


class CarriedError(RuntimeError):
    """Holds a translated error as text, because only text crosses from a Python worker."""


def carrying(
    work: Callable[[Any], Iterator[_T]], translate: Callable[[Exception], FlowError]
) -> Callable[[Any], Iterator[_T]]:
    """A task function of a source: its driver errors arrive as FlowErrors, and what it reads is counted."""
    counter = progress.Counter.of(progress.READ)
    return _guarded(lambda batches: counter.passing(work(batches)), translate)


def staging(
    work: Callable[[Any], Iterator[_T]], translate: Callable[[Exception], FlowError]
) -> Callable[[Any], Iterator[_T]]:
    """A task function of a sink: its driver errors arrive as FlowErrors, and what it is given is counted."""
    counter = progress.Counter.of(progress.STAGED)
    return _guarded(lambda batches: work(counter.passing(batches)), translate)


def _guarded(
    work: Callable[[Any], Iterator[_T]], translate: Callable[[Exception], FlowError]
) -> Callable[[Any], Iterator[_T]]:
    def run(batches: Any) -> Iterator[_T]:
        try:
            yield from work(batches)
        except Exception as exc:
            raise carried_error(exc, translate) from exc

    return run


def carried_error(exc: Exception, translate: Callable[[Exception], FlowError]) -> CarriedError:
    """An exception of a task, translated and as text."""
    if isinstance(exc, CarriedError):
        return exc
    if BAD_VALUE in str(exc) or _MARK in str(exc):  # the engine's own, where it hands over rows in this very process
        return CarriedError(str(exc))
    error = exc if isinstance(exc, FlowError) else translate(exc)
    text = json.dumps({"type": type(error).__name__, "what": error.what, "hint": error.hint})
    return CarriedError(_MARK + text)


def refusing_sql(value: str, *, before: str, after: str, hint: str, most: int = 80) -> str:
    """A Spark expression that ends the job as BadValue, with a value of the row, or its beginning, between two texts."""
    before, after, hint = (said.replace("\\", "\\\\").replace("'", "\\'") for said in (before, after, hint))
    said = f"concat('{before}', left(CAST({value} AS STRING), {most}), '{after}')"
    kept = f"to_json(named_struct('type', 'BadValue', 'what', {said}, 'hint', '{hint}'))"
    return f"raise_error(concat('{_MARK}', {kept}, '\\n'))"


def unpack(text: str) -> FlowError | None:
    """The carried error inside a Spark exception's text, None when there is none."""
    found = _CARRIED.search(text)
    if found is None:
        return None
    try:
        kept = json.loads(found.group(1))
    except ValueError:
        return None
    kind = getattr(errors, kept["type"], RunFailed)
    error: FlowError = kind(kept["what"], hint=kept["hint"])
    return error
