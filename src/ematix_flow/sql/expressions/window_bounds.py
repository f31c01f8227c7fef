"""`{start}` and `{end}` in a query: found outside of strings and comments, replaced by timestamp literals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from ematix_flow.foundation.errors import SqlError
from ematix_flow.foundation.lazy_imports import sqlglot
from ematix_flow.sql.expressions.literals import known_dialect, literal

_MARK = re.compile(r"\{(start|end)\}")


def window_marks(query: str) -> frozenset[str]:
    """Return the marks that occur anywhere in the text, without parsing it.

    >>> sorted(window_marks("SELECT * FROM t WHERE at >= {start} AND at < {end}"))
    ['end', 'start']
    """
    return frozenset(_MARK.findall(query))


def bind_window(query: str, values: Mapping[str, datetime], dialect: str) -> str:
    """Return the query with its marks replaced by timestamps; raise `SqlError` for a mark inside quotes.

    >>> from datetime import datetime
    >>> bind_window("at < {end} -- not {end}", {"end": datetime(2026, 1, 2)}, "sqlite")
    "at < '2026-01-02' -- not {end}"
    """
    dialect = known_dialect(dialect)
    for start, end, name in reversed(_places(query, dialect)):
        query = query[:start] + instant(values[name], dialect) + query[end:]
    return query


def instant(value: datetime, dialect: str) -> str:
    """Return a timestamp literal; in SQLite the shortest text, which sorts right before any longer spelling.

    >>> instant(datetime(2026, 1, 2), "sqlite"), instant(datetime(2026, 1, 2, 6), "sqlite")
    ("'2026-01-02'", "'2026-01-02 06:00:00'")
    """
    if dialect != "sqlite":
        return literal(value, dialect)
    utc = value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo else value
    is_midnight = (utc.hour, utc.minute, utc.second, utc.microsecond) == (0, 0, 0, 0)
    return f"'{utc.date().isoformat()}'" if is_midnight else f"'{utc.isoformat(sep=' ')}'"


def _places(query: str, dialect: str) -> list[tuple[int, int, str]]:
    """Return start, end and name of each mark, in the order of the text; raise `SqlError` for one inside quotes."""
    places: list[tuple[int, int, str]] = []
    tokens = _tokens(query, dialect)
    for first, second, third in zip(tokens, tokens[1:], tokens[2:], strict=False):
        span = query[first.start : third.end + 1]
        mark = _MARK.fullmatch(span)
        if mark is not None and second.text == mark[1]:
            places.append((first.start, third.end + 1, mark[1]))
    for token in tokens:
        quoted = _MARK.search(token.text)
        if quoted is not None:
            raise SqlError(
                f"{quoted[0]} stands inside quotes: {token.text[:60]!r}",
                hint=f"write {quoted[0]} without quotes; it becomes a timestamp by itself",
            )
    return places


def _tokens(query: str, dialect: str) -> list[Any]:
    try:
        return list(sqlglot.tokenize(query, read=dialect))
    except sqlglot.errors.SqlglotError as exc:
        raise SqlError(f"the query cannot be read: {str(exc).splitlines()[0]}", hint="check its quotes") from exc
