"""What Spark counted beside an action."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Observation


def heard(watch: Observation) -> Mapping[str, Any]:
    """The counts, asked after the action; empty where Spark left them out, as it does when it finds that a step gives
    nothing."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    try:
        return watch.get
    except Py4JJavaError:
        return {}
