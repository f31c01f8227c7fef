"""Normalizers and transforms as SQL: one expression tree, rendered for Spark and for each database."""

from ematix_flow.expressions.binding import bound, marks_in
from ematix_flow.expressions.building import output_type
from ematix_flow.expressions.cannot_render import CannotRender
from ematix_flow.expressions.literals import DIALECTS, literal, quote
from ematix_flow.expressions.select import normalized_select, render_chain
from ematix_flow.expressions.user_sql import transpile

__all__ = [
    "DIALECTS",
    "CannotRender",
    "bound",
    "literal",
    "marks_in",
    "normalized_select",
    "output_type",
    "quote",
    "render_chain",
    "transpile",
]
