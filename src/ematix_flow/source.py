"""Sources of pipelines."""

from ematix_flow.declare.endpoints import Source

__all__ = ["Source"]
