"""The decorator `@udf`: functions over PyArrow arrays that SQL can call."""

from __future__ import annotations

from ematix_flow.api.functions import apply_udf_to_batch, udf
from ematix_flow.declare.udfs import PythonScalarUdfHandle

__all__ = [
    "PythonScalarUdfHandle",
    "apply_udf_to_batch",
    "udf",
]
