"""An iterator of a broker's batches, for users who read messages manually."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar

_Reader = TypeVar("_Reader")


class ArrowBatchIter(Iterator[Any]):
    """PyArrow record batches, fetched lazily; `close()` ends the reading early."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches

    def __next__(self) -> Any:
        return next(self._batches)

    def close(self) -> None:
        """Stop fetching."""
        end = getattr(self._batches, "close", None)
        if end is not None:
            end()


def one_by_one(read: Callable[[_Reader, str], Iterator[Any]]) -> Callable[..., ArrowBatchIter]:
    """Decorate a method that yields batches so that it returns an `ArrowBatchIter`."""

    @wraps(read)
    def reading(self: _Reader, *args: str, **named: str) -> ArrowBatchIter:
        return ArrowBatchIter(read(self, *args, **named))

    return reading
