"""Which connection a name means, and where it is written down."""

from ematix_flow.config.resolve import (
    ListedConnection,
    ResolvedConnection,
    list_connections,
    list_entries,
    resolve_dsn,
)
from ematix_flow.config.write import parse_assignment, set_connection

__all__ = [
    "ListedConnection",
    "ResolvedConnection",
    "list_connections",
    "list_entries",
    "parse_assignment",
    "resolve_dsn",
    "set_connection",
]
