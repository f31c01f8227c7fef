"""The search for rows that cannot be encoded as messages, so that all others can be sent."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.engine.streams.culling import as_frame, refusal_of, refused_rows, up_to
from ematix_flow.engine.streams.row_numbers import ROW, with_row_numbers
from ematix_flow.foundation.errors import FlowError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FALLIBLE = ("protobuf",)
"""Payload formats that cannot hold every value of Spark's types."""


@dataclass
class Encoding:
    """A trial that encodes some rows and discards the messages."""

    rows: DataFrame
    encode: Callable[[DataFrame], DataFrame]
    most_tries: int = 400

    def __call__(self, last: int, without: Collection[int]) -> FlowError | None:
        some = self.rows.where(up_to(ROW, last, without)).drop(ROW)
        try:
            self.encode(some).write.format("noop").mode("overwrite").save()
        except Exception as exc:
            return refusal_of(exc)
        return None

    def close(self) -> None:
        """Do nothing: a try leaves nothing."""


def marked(rows: DataFrame, messages: DataFrame, encode: Callable[[DataFrame], DataFrame]) -> DataFrame | None:
    """Return the rows with the errors of those that cannot be encoded; None where all `messages` can.

    `messages` are persisted by the caller, which sends them: without errors they are encoded once, and not examined.
    """
    try:
        messages.count()
    except Exception as exc:
        refusal_of(exc)
    else:
        return None
    all_rows = with_row_numbers(rows)
    ids = sorted(int(row[0]) for row in all_rows.select(ROW).collect())
    refused = refused_rows(ids, Encoding(all_rows, encode))
    return all_rows.join(as_frame(all_rows, refused), ROW, "left").drop(ROW) if refused else None
