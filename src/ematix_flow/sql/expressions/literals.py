"""Identifiers and literals in a dialect."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Final

from ematix_flow.foundation.names import did_you_mean
from ematix_flow.sql.expressions.tree import Value

DIALECTS: Final = ("spark", "postgres", "mysql", "sqlite", "duckdb")
_ALIASES = {"mariadb": "mysql", "postgresql": "postgres"}
_BACKTICKS = ("spark", "mysql")
_LONGEST_EXACT = 38  # digits of the widest decimal in Spark and DuckDB


def known_dialect(name: str) -> str:
    """Return the canonical name of a dialect or alias; raise ValueError, which suggests the nearest name."""
    dialect = _ALIASES.get(name, name)
    if dialect not in DIALECTS:
        raise ValueError(f"no dialect {name!r}; {did_you_mean(name, DIALECTS)}")
    return dialect


def quote(identifier: str, dialect: str) -> str:
    """Return the quoted identifier.

    >>> quote('a"b', "postgres"), quote("order", "mysql")
    ('"a""b"', '`order`')
    """
    if "\0" in identifier or not identifier:
        raise ValueError(f"{identifier!r} cannot be a name")
    mark = "`" if known_dialect(dialect) in _BACKTICKS else '"'
    return mark + identifier.replace(mark, mark * 2) + mark


def literal(value: Value, dialect: str) -> str:
    """Return a literal of the dialect; a datetime without a time zone is UTC.

    >>> literal("it's", "postgres"), literal(True, "sqlite")
    ("'it''s'", '1')
    """
    dialect = known_dialect(dialect)
    if isinstance(value, bool):
        return str(int(value)) if dialect == "sqlite" else str(value).upper()
    if isinstance(value, str):
        return _text(value, dialect)
    if isinstance(value, datetime):
        return _instant(value, dialect)
    if isinstance(value, date):
        return f"'{value.isoformat()}'" if dialect == "sqlite" else f"DATE '{value.isoformat()}'"
    return _number(value, dialect)


def iso_instant(value: datetime) -> str:
    """Return `YYYY-MM-DD HH:MM:SS.ffffff` in UTC."""
    utc = value if value.tzinfo is None else value.astimezone(timezone.utc)
    return utc.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")


def _text(value: str, dialect: str) -> str:
    if "\0" in value:
        raise ValueError("text with a NUL character cannot be written in SQL")
    if dialect == "spark":
        # spark.sql() replaces ${...} even inside strings
        escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{")
        return f"'{escaped}'"
    if dialect == "mysql":
        value = value.replace("\\", "\\\\")
    return "'" + value.replace("'", "''") + "'"


def _instant(value: datetime, dialect: str) -> str:
    iso = iso_instant(value)
    if dialect == "sqlite":
        return f"'{iso}+00:00'"
    if dialect == "mysql":
        return f"TIMESTAMP '{iso}'"
    if dialect == "spark":
        return f"TIMESTAMP_LTZ '{iso}+00:00'"
    return f"CAST('{iso}+00:00' AS TIMESTAMPTZ)"


def _number(value: int | float | Decimal, dialect: str) -> str:
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    fixed = f"{number:f}"
    digits = sum(character.isdigit() for character in fixed)
    if isinstance(value, float) and digits > _LONGEST_EXACT:
        fixed = f"{number:E}"
    if dialect == "sqlite" and isinstance(value, Decimal):
        return f"'{fixed}'"  # SQLite has no exact decimals, so they are stored as text
    return f"({fixed})" if fixed.startswith("-") else fixed
