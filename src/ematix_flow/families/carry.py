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
_CARRIED = re.compile(re.escape(_MARK) + r"(\{.*?\})(?=\s*$|\s*\n)", re.MULTILINE)
_T = TypeVar("_T")


class CarriedError(RuntimeError):
    """Holds a translated error as text, because only text crosses from a Python worker."""


def carrying(
    work: Callable[[Any], Iterator[_T]], translate: Callable[[Exception], FlowError]
) -> Callable[[Any], Iterator[_T]]:
    """A task function whose driver errors arrive as FlowErrors, and whose rows are counted while they come."""
    watched = progress.folder()

    def run(batches: Any) -> Iterator[_T]:
        counted = progress.TaskCount(watched)
        try:
            for batch in work(batches):
                counted.add(getattr(batch, "num_rows", 0))
                yield batch
        except CarriedError:
            raise
        except Exception as exc:
            error = exc if isinstance(exc, FlowError) else translate(exc)
            text = json.dumps({"type": type(error).__name__, "what": error.what, "hint": error.hint})
            raise CarriedError(_MARK + text) from exc

    return run


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
