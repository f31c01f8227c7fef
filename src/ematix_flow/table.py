"""Tables."""

from ematix_flow.declare.table import ManagedTable

__all__ = ["ManagedTable"]
