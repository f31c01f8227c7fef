"""The decorator `@udaf`: classes that aggregate PyArrow arrays for SQL."""

from __future__ import annotations

from ematix_flow.api.functions import apply_udaf_to_batch, udaf
from ematix_flow.declare.udfs import PythonAggregateUdfHandle

__all__ = [
    "PythonAggregateUdfHandle",
    "apply_udaf_to_batch",
    "udaf",
]
