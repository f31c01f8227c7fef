"""Markers of table columns."""

from ematix_flow.declare.markers import natural_key, nullable, pk

__all__ = ["natural_key", "nullable", "pk"]
