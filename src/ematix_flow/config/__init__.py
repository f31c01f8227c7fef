"""Which connection a name means, and where it is written down."""

from typing import TYPE_CHECKING

from ematix_flow.config.connection_writer import parse_assignment, set_connection
from ematix_flow.config.resolve import ListedConnection, ResolvedConnection, list_connections, list_entries, resolve_dsn
from ematix_flow.foundation.names import lazy_exports

if TYPE_CHECKING:
    from ematix_flow.api.connect import check_connection, connect

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

__getattr__ = lazy_exports(
    __name__,
    {
        "check_connection": "ematix_flow.api.connect",
        "connect": "ematix_flow.api.connect",
    },
)
