"""Live connections: open one, ask whether it answers, ask whether two are the same database."""

from __future__ import annotations

from typing import Any

from ematix_flow.engine.handle import Connection, connect

__all__ = ["Connection", "check_connection", "connect", "same_database"]


def check_connection(name: str) -> tuple[bool, str]:
    """Whether the connection of this name answers, and a few words about it."""
    from ematix_flow.cli.health import check_connection

    report = check_connection(name)
    return not report.is_fail, report.detail


def same_database(one: Any, other: Any) -> bool:
    """Whether two connections, by name, declaration or open, mean the same database."""
    first, second = (item if isinstance(item, Connection) else connect(item) for item in (one, other))
    if first.backend is not second.backend or first.backend.identity is None:
        return False
    return first.backend.identity(first.declared) == first.backend.identity(second.declared)
