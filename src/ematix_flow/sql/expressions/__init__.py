"""Normalizers and transforms as SQL: one expression tree, rendered for Spark and for each database."""

from ematix_flow.sql.expressions.build import output_type
from ematix_flow.sql.expressions.literals import DIALECTS, literal, quote
from ematix_flow.sql.expressions.select import normalized_select, render_chain
from ematix_flow.sql.expressions.tree import CannotRender
from ematix_flow.sql.expressions.user_sql import transpile
from ematix_flow.sql.expressions.window_bounds import bind_window, window_marks

__all__ = [
    "DIALECTS",
    "CannotRender",
    "bind_window",
    "literal",
    "normalized_select",
    "output_type",
    "quote",
    "render_chain",
    "transpile",
    "window_marks",
]
