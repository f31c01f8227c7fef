"""The base class of tables."""

from ematix_flow.declare.table import ManagedTable

__all__ = ["ManagedTable"]
