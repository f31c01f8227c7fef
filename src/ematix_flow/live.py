"""Live connections: open one, ask whether it answers, ask whether two are the same database."""

from __future__ import annotations

from typing import Any

from ematix_flow.engine.handle import Connection
from ematix_flow.engine.handle import connect as _opened

__all__ = ["Connection", "check_connection", "connect", "same_database"]


def connect(name: Any = "default", *, url: str | None = None) -> Connection:
    """A live connection by name, by declaration or by url; the system is asked at once whether it answers."""
    opened = _opened(name, url=url)
    if opened.backend.client is not None and opened.backend.dialect != "spark":  # which would start an engine
        opened.ping()
    return opened


def check_connection(name: str) -> tuple[bool, str]:
    """Whether the connection of this name answered, and a few words about it; False where it could not be asked."""
    from ematix_flow.cli.health import check_connection

    report = check_connection(name)
    return report.is_ok, report.detail


def same_database(one: Any, other: Any) -> bool:
    """Whether two connections, by name, url, declaration or open, mean the same database; nobody is asked."""
    first, second = (_handle(item) for item in (one, other))
    if first.backend is not second.backend or first.backend.identity is None:
        return False
    return first.backend.identity(first.declared) == first.backend.identity(second.declared)


def _handle(item: Any) -> Connection:
    if isinstance(item, Connection):
        return item
    return _opened(url=item) if isinstance(item, str) and "://" in item else _opened(item)
