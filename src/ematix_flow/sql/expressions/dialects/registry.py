"""The renderer of each dialect."""

from __future__ import annotations

from ematix_flow.sql.expressions.dialects.duckdb import DuckDBRenderer
from ematix_flow.sql.expressions.dialects.mysql import MySQLRenderer
from ematix_flow.sql.expressions.dialects.postgres import PostgresRenderer
from ematix_flow.sql.expressions.dialects.renderer import Renderer
from ematix_flow.sql.expressions.dialects.spark import SparkRenderer
from ematix_flow.sql.expressions.dialects.sqlite import SQLiteRenderer
from ematix_flow.sql.expressions.literals import known_dialect

_RENDERERS: dict[str, Renderer] = {
    renderer.dialect: renderer
    for renderer in (SparkRenderer(), PostgresRenderer(), MySQLRenderer(), SQLiteRenderer(), DuckDBRenderer())
}


def renderer_for(dialect: str) -> Renderer:
    """Return the renderer of a dialect."""
    return _RENDERERS[known_dialect(dialect)]
