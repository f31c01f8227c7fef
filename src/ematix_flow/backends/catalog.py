"""Finds backends: those of this folder by a table, and those of other packages by their entry points.

Looking one backend up imports only that one.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from functools import cache
from typing import Any

from ematix_flow.contract.backend import Backend
from ematix_flow.declare.connections.base import Connection
from ematix_flow.declare.connections.outside import outside_backends
from ematix_flow.foundation.errors import Unsupported

_FOLDERS = {
    "postgres": "postgres", "mysql": "mysql", "sqlite": "sqlite", "duckdb": "duckdb",
    "delta_local": "delta", "delta_s3": "delta_s3", "object_store_local": "files", "object_store_s3": "files_s3",
    "kafka": "kafka", "rabbitmq": "rabbitmq", "pubsub": "pubsub", "kinesis": "kinesis",
}  # fmt: skip
"""The folder here of every kind of connection that has a backend."""


@cache
def backend_of_kind(kind: str) -> Backend:
    """Return the backend of a kind of connections; raise KeyError where there is none."""
    folder = _FOLDERS.get(kind)
    backend: Backend = (
        importlib.import_module(f"ematix_flow.backends.{folder}").backend
        if folder is not None
        else outside_backends()[kind].load()
    )
    return backend


@cache
def all_backends() -> tuple[Backend, ...]:
    """Return every backend, sorted by name; imports all of them."""
    kinds = (*_FOLDERS, *outside_backends())
    return tuple(sorted((backend_of_kind(kind) for kind in kinds), key=lambda backend: backend.name))


def backend_named(name: str) -> Backend | None:
    """Return the backend of this name, None where there is none."""
    own = next((kind for kind, folder in _FOLDERS.items() if folder == name), None)
    if own is not None:
        return backend_of_kind(own)
    return next((backend for backend in all_backends() if backend.name == name), None)


def backend_for(connection: Any) -> Backend:
    """Return the backend of a connection with all jars that it needs; raise Unsupported where no backend matches."""
    kind = connection.kind if isinstance(connection, Connection) else type(connection).__name__
    if kind in _FOLDERS or kind in outside_backends():
        backend = backend_of_kind(kind)
        more = backend.jars_for(connection) if backend.jars_for is not None else ()
        return replace(backend, jars=(*backend.jars, *more)) if more else backend
    offered = ", ".join(backend.name for backend in all_backends() if backend.batch_source or backend.batch_sink)
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
