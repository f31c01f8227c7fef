"""What the brokers' classes for notebooks share: batches as an iterator or a list, closing, and positive options."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar

from ematix_flow.foundation.errors import DeclarationError

BATCH_SIZE = 10_000
BATCH_BYTES = 16 * 1024**2


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


_Reader = TypeVar("_Reader")
_Notebook = TypeVar("_Notebook", bound="NotebookBackend")


def as_batch_iterator(read: Callable[[_Reader, str], Iterator[Any]]) -> Callable[..., ArrowBatchIter]:
    """Decorate a method that yields batches so that it returns an `ArrowBatchIter`."""

    @wraps(read)
    def reading(self: _Reader, *args: str, **named: str) -> ArrowBatchIter:
        return ArrowBatchIter(read(self, *args, **named))

    return reading


class NotebookBackend(ABC):
    """A connection to one broker, for use without Spark and by one thread."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @abstractmethod
    def iter_arrow_stream(self, query: str) -> ArrowBatchIter:
        """Yield batches of the messages of one place."""

    def read_arrow_stream(self, query: str) -> list[Any]:
        """Return the same batches as one list."""
        return list(self.iter_arrow_stream(query))

    @abstractmethod
    def close(self) -> None:
        """Close what is open."""

    def __enter__(self: _Notebook) -> _Notebook:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._connection!r})"


def positive_option(name: str, value: int | None, default: int) -> int:
    """Return the value of an option, its default when it is None; raise DeclarationError unless it is positive."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise DeclarationError(f"{name} takes a positive whole number, not {value!r}")
    return value
