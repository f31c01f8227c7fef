"""Backends of other packages: entry points in one group, each named after the kind of connection that it serves."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from ematix_flow.declare.connections.base import Connection
from ematix_flow.foundation.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "ematix_flow.backends"


@cache
def outside_backends() -> Mapping[str, EntryPoint]:
    """Return the entry points by kind; none of them is loaded."""
    from importlib.metadata import entry_points  # which takes longer to import than all connections

    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def outside_class(kind: str) -> type[Connection]:
    """Return the connection class of a kind that another package serves; raise ConfigError where it has none."""
    classes: tuple[type[Connection], ...] = outside_backends()[kind].load().connection_types
    known = next((item for item in classes if item.kind == kind), None)
    if known is None:
        raise ConfigError(
            f"the entry point {kind!r} of {ENTRY_POINTS} serves connections of kind {[item.kind for item in classes]}",
            hint="name the entry point after the kind",
        )
    return known
