"""Connections by name, and the files in which they are configured."""

from typing import TYPE_CHECKING, Any

from ematix_flow.config.resolve import (
    ListedConnection,
    ResolvedConnection,
    list_connections,
    list_entries,
    resolve_dsn,
)
from ematix_flow.config.write import parse_assignment, set_connection

if TYPE_CHECKING:
    from ematix_flow.live import check_connection, connect

__all__ = [
    "ListedConnection",
    "ResolvedConnection",
    "check_connection",
    "connect",
    "list_connections",
    "list_entries",
    "parse_assignment",
    "resolve_dsn",
    "set_connection",
]


def __getattr__(name: str) -> Any:
    # Documented as part of this package, but implemented elsewhere, because they open connections.
    if name in ("check_connection", "connect"):
        from ematix_flow import live

        return getattr(live, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
