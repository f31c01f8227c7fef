"""Finds the rows that no message can be made of, so that all others can be sent."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.engine.streams.culling import ROW, as_frame, refusal_of, refused_rows, up_to
from ematix_flow.foundation.errors import FlowError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FALLIBLE = ("protobuf",)
"""Payloads that cannot hold every value of Spark's types."""


@dataclass
class Encoding:
    """A try is to write the messages of some rows to nowhere."""

    numbered: DataFrame
    encode: Callable[[DataFrame], DataFrame]
    most_tries: int = 400

    def __call__(self, last: int, without: Collection[int]) -> FlowError | None:
        some = self.numbered.where(up_to(ROW, last, without)).drop(ROW)
        try:
            self.encode(some).write.format("noop").mode("overwrite").save()
        except Exception as exc:
            return refusal_of(exc)
        return None

    def close(self) -> None:
        """Nothing was left anywhere."""


def marked(rows: DataFrame, encode: Callable[[DataFrame], DataFrame], open_until: ExitStack) -> DataFrame | None:
    """The rows, with what is wrong with those that no message can be made of; None when all can be encoded."""
    numbered = rows.selectExpr("*", f"monotonically_increasing_id() AS {ROW}").persist()
    open_until.callback(numbered.unpersist)
    ids = sorted(int(row[0]) for row in numbered.select(ROW).collect())
    refused = refused_rows(ids, Encoding(numbered, encode))
    return numbered.join(as_frame(numbered, refused), ROW, "left").drop(ROW) if refused else None
