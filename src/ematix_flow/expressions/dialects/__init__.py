"""One renderer per dialect, for the operations of the expression tree."""

from ematix_flow.expressions.dialects.choosing import renderer_for

__all__ = ["renderer_for"]
