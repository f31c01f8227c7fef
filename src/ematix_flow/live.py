"""Open connections: opening one, checking that it answers, and comparing two."""

from __future__ import annotations

from typing import Any

from ematix_flow.engine.handle import Connection
from ematix_flow.engine.handle import connect as _opened

__all__ = ["Connection", "check_connection", "connect", "same_database"]


def connect(name: Any = "default", *, url: str | None = None) -> Connection:
    """Return an open connection by name, by declaration or by URL; a server is contacted at once."""
    opened = _opened(name, url=url)
    if opened.backend.client is not None and opened.backend.dialect != "spark":  # which would start an engine
        opened.ping()
    return opened


def check_connection(name: str) -> tuple[bool, str]:
    """Return whether the connection of this name answers, with a short text; False also if it could not be checked."""
    from ematix_flow.cli.health import check_connection

    report = check_connection(name)
    return report.is_ok, report.detail


def same_database(one: Any, other: Any) -> bool:
    """Return whether two names, URLs, declarations or connections are the same database, without contacting it."""
    first, second = (_handle(item) for item in (one, other))
    if first.backend is not second.backend or first.backend.identity is None:
        return False
    return first.backend.identity(first.declared) == first.backend.identity(second.declared)


def _handle(item: Any) -> Connection:
    if isinstance(item, Connection):
        return item
    return _opened(url=item) if isinstance(item, str) and "://" in item else _opened(item)
