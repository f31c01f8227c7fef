"""A client of a lake: queries in Spark SQL, for user functions and checks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from ematix_flow.families.lake.errors import translated_errors
from ematix_flow.families.lake.source import LakeSource
from ematix_flow.foundation.errors import Unsupported


class LakeClient:
    """A client that runs queries; lakes that support statements override `execute`."""

    title = "this lake"

    def __init__(self, source: LakeSource) -> None:
        self._source = source

    def query(self, sql: str, *, limit: int | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return the column names and rows of a query."""
        with ExitStack() as open_until:
            frame = self._source.frame(sql, open_until)
            with translated_errors("the query"):
                rows = (frame if limit is None else frame.limit(limit)).collect()
            return list(frame.columns), [tuple(row) for row in rows]

    def execute(self, sql: str) -> int:
        """Raise `Unsupported`: not every lake supports statements."""
        raise Unsupported(
            f"{self.title} takes queries and loads, and no other statements", hint="use query(), or a pipeline"
        )

    def execute_all(self, statements: Sequence[str]) -> int:
        """Execute one statement; raise `Unsupported` for several, which cannot be one commit."""
        if len(statements) > 1:
            raise Unsupported(
                f"{self.title} has no transaction over several statements", hint="execute them one by one"
            )
        return sum(self.execute(statement) for statement in statements)

    def close(self) -> None:
        """Do nothing; no connection is open."""
