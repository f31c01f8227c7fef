"""Where the rows of a run come from, as the pipeline's function names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.windows import DataWindow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class QuerySource:
    """SQL on one connection; if it contains `{start}` and `{end}`, `window` holds their values."""

    connection: Any
    query: str
    window: DataWindow | None = None


@dataclass(frozen=True)
class FrameSource:
    """A dataframe that the function returned."""

    frame: DataFrame


@dataclass(frozen=True)
class NoSource:
    """The dict of a function that did the work itself, so that there is nothing to read."""

    value: Mapping[str, Any]


ResolvedSource = QuerySource | FrameSource | NoSource
