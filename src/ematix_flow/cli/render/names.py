"""Names of connections and systems in the output of the command line."""

from __future__ import annotations

from ematix_flow.foundation.errors import FlowError

FILES = ("files", "files_s3")
_FORMATS = {"json_lines": "jsonl"}


def name_of(connection: object) -> str:
    """Return the name of a connection, given as an object or as the name itself."""
    return connection if isinstance(connection, str) else str(getattr(connection, "name", connection))


def system_of(connection: object, backend: str) -> str:
    """Return the name of a system: that of the backend, or the file format for the files backends.

    >>> from ematix_flow.declare.connections import ObjectStoreLocalConnection
    >>> system_of(ObjectStoreLocalConnection("raw", path="data", format="json_lines"), "files")
    'jsonl'
    """
    if backend not in FILES or connection is None or isinstance(connection, (list, tuple)):
        return backend
    from ematix_flow.config.resolve import resolve
    from ematix_flow.declare.connections.lakes import files_format

    try:
        resolved = resolve(connection).connection if isinstance(connection, str) else connection
    except FlowError:
        return backend
    file_format = files_format(resolved) or backend
    return _FORMATS.get(file_format, file_format)
