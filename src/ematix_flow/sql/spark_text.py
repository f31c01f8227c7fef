"""Names and texts written down in Spark SQL."""

from __future__ import annotations


def quote(name: str) -> str:
    """Return a quoted identifier of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def text_literal(value: str) -> str:
    """Return a text literal of Spark SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
