"""One renderer per dialect, for the operations of the expression tree."""

from ematix_flow.sql.expressions.dialects.registry import renderer_for

__all__ = ["renderer_for"]
