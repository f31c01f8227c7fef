"""The metrics of a Spark `Observation`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Observation


def heard(watch: Observation) -> Mapping[str, Any]:
    """Return the metrics after the action; none where Spark removed the observed step because it returns no rows."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    try:
        return watch.get
    except Py4JJavaError:
        return {}
