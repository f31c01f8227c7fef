"""How things are called on the command line."""

from __future__ import annotations


def name_of(connection: object) -> str:
    """A connection's name, whether it is one or only its name."""
    return connection if isinstance(connection, str) else str(getattr(connection, "name", connection))
