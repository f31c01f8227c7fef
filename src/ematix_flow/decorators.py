"""The `ematix` namespace: decorators that build and register declarations."""

from __future__ import annotations

from ematix_flow.api.decorators import Ematix, ematix
from ematix_flow.declare.endpoints import Target
from ematix_flow.declare.registry import TransformRef

__all__ = [
    "Ematix",
    "Target",
    "TransformRef",
    "ematix",
]
