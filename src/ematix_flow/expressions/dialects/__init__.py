"""How each dialect writes the operations."""

from ematix_flow.expressions.dialects.choosing import renderer_for

__all__ = ["renderer_for"]
