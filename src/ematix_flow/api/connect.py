"""Open live connections, check them, and compare two of them."""

from __future__ import annotations

from typing import Any

from ematix_flow.engine.connections.connection import LiveConnection
from ematix_flow.engine.connections.connection import open_connection as _opened

__all__ = ["LiveConnection", "check_connection", "connect", "same_database"]


def connect(name: Any = "default", *, url: str | None = None) -> LiveConnection:
    """Return an open connection by name, by declaration or by URL; a server is contacted at once."""
    opened = _opened(name, url=url)
    if opened.backend.client is not None and not opened.backend.is_lake:  # which would start an engine
        opened.ping()
    return opened


def check_connection(name: str) -> tuple[bool, str]:
    """Return whether the connection of this name answers, with a short text; False also if it could not be checked."""
    from ematix_flow.engine.connections.health import check_connection

    report = check_connection(name)
    return report.is_ok, report.detail


def same_database(one: Any, other: Any) -> bool:
    """Return whether two names, URLs, declarations or connections are the same database, without contacting it."""
    first, second = (_handle(item) for item in (one, other))
    if first.backend is not second.backend or first.backend.identity is None:
        return False
    return first.backend.identity(first.declared) == first.backend.identity(second.declared)


def _handle(item: Any) -> LiveConnection:
    if isinstance(item, LiveConnection):
        return item
    return _opened(url=item) if isinstance(item, str) and "://" in item else _opened(item)
