"""Batches of a broker for people who read by hand, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar

_Reader = TypeVar("_Reader")


class ArrowBatchIter(Iterator[Any]):
    """PyArrow record batches that are fetched when they are asked for; `close()` ends the reading early."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches

    def __next__(self) -> Any:
        return next(self._batches)

    def close(self) -> None:
        """Fetch no more."""
        end = getattr(self._batches, "close", None)
        if end is not None:
            end()


def one_by_one(read: Callable[[_Reader, str], Iterator[Any]]) -> Callable[..., ArrowBatchIter]:
    """A method that yields batches, as one that returns them as an `ArrowBatchIter`."""

    @wraps(read)
    def reading(self: _Reader, *args: str, **named: str) -> ArrowBatchIter:
        return ArrowBatchIter(read(self, *args, **named))

    return reading
