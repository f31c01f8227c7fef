"""How things are called on the command line."""

from __future__ import annotations

from ematix_flow.foundation.errors import FlowError

FILES = ("files", "files_s3")
_FORMATS = {"json_lines": "jsonl"}


def name_of(connection: object) -> str:
    """A connection's name, whether it is one or only its name."""
    return connection if isinstance(connection, str) else str(getattr(connection, "name", connection))


def system_of(connection: object, backend: str) -> str:
    """What a system is called in one word: the backend's name, or the format where files are meant.

    >>> from ematix_flow.declare.connections import ObjectStoreLocalConnection
    >>> system_of(ObjectStoreLocalConnection("raw", path="data", format="json_lines"), "files")
    'jsonl'
    """
    if backend not in FILES or connection is None or isinstance(connection, (list, tuple)):
        return backend
    from ematix_flow.config.resolve import resolve

    try:
        found = resolve(connection).connection if isinstance(connection, str) else connection
    except FlowError:
        return backend
    file_format = str(getattr(found, "format", "") or backend)
    return _FORMATS.get(file_format, file_format)
