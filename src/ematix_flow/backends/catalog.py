"""Finds the backends: the packages in this folder, and those that other packages register as entry points."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any

from ematix_flow.contract.backend import Backend
from ematix_flow.foundation.errors import Unsupported

ENTRY_POINTS = "ematix_flow.backends"


@lru_cache(maxsize=1)
def all_backends() -> tuple[Backend, ...]:
    """Return every backend, sorted by name."""
    package = importlib.import_module("ematix_flow.backends")
    folders = [item.name for item in pkgutil.iter_modules(package.__path__) if item.ispkg]
    backends = [importlib.import_module(f"ematix_flow.backends.{name}").backend for name in folders]
    backends += [point.load() for point in entry_points(group=ENTRY_POINTS)]
    return tuple(sorted(backends, key=lambda backend: backend.name))


def backend_for(connection: Any) -> Backend:
    """Return the backend of a connection with all jars that it needs; raise Unsupported where no backend matches."""
    for backend in all_backends():
        if isinstance(connection, backend.connection_types):
            more = backend.jars_for(connection) if backend.jars_for is not None else ()
            return replace(backend, jars=(*backend.jars, *more)) if more else backend
    offered = ", ".join(backend.name for backend in all_backends() if backend.batch_source or backend.batch_sink)
    kind = getattr(connection, "kind", type(connection).__name__)
    raise Unsupported(
        f"connection {getattr(connection, 'name', '?')!r} is of kind {kind!r}, which batch pipelines cannot use",
        hint=f"use one of: {offered}",
    )


def batch_refusal(backend: Backend, *, reading: bool) -> Unsupported:
    """Return the error for a batch pipeline on a backend without a batch source (`reading`) or batch sink."""
    offered = backend.stream_source if reading else backend.broker_sink
    return Unsupported(
        f"{backend.title} cannot be {'read' if reading else 'written'} by a batch pipeline",
        hint="declare a stream with @ematix.streaming_pipeline" if offered else None,
    )
