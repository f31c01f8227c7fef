"""A reachability check of one connection, depending on its kind."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ematix_flow.declare.connections import (
    Connection,
    DeltaLocalConnection,
    FileDatabaseConnection,
    ObjectStoreLocalConnection,
)
from ematix_flow.declare.connections.lakes import BucketConnection
from ematix_flow.engine.connections.health import CheckSkipped
from ematix_flow.foundation.errors import ConfigError, PermissionDenied, Unreachable, Unsupported

TIMEOUT_SECONDS = 3.0
_URL_FIELDS = ("url", "amqp_url", "endpoint")
_DEFAULT_PORTS = {"http": 80, "https": 443, "amqp": 5672, "amqps": 5671}


def check_reachable(connection: Connection) -> str:
    """Return a short text on what answered; raise FlowError if it does not answer, `Skip` if it cannot be checked."""
    _has_packages(connection)
    ready = connection.resolved()
    if isinstance(ready, (DeltaLocalConnection, ObjectStoreLocalConnection)):
        return _folder(Path(ready.path), connection)
    if isinstance(ready, BucketConnection):
        return _bucket(ready)
    if isinstance(ready, FileDatabaseConnection) and ready.path != ":memory:" and not Path(ready.path).exists():
        return _missing_folder(Path(ready.path), connection)
    return _ping_backend(connection) or _check_port(ready)


def _has_packages(connection: Connection) -> None:
    """Check the packages first: a missing file, or a port that answers, gives no information about them."""
    from ematix_flow.backends.catalog import backend_for
    from ematix_flow.foundation import packages

    try:
        backend = backend_for(connection)
    except Unsupported:
        return
    if backend.extra:
        packages.require_extra(backend.extra, what=backend.title)


def _ping_backend(connection: Connection) -> str:
    """Query the system itself and return the connection's label; empty if its backend has no client."""
    from ematix_flow.backends.catalog import backend_for

    try:
        backend = backend_for(connection)
    except Unsupported:
        return ""
    if backend.client is None:
        return ""
    with closing(backend.client(connection)) as session:
        session.query("SELECT 1")
    return connection.label


def _check_port(ready: Connection) -> str:
    """Check that the server accepts TCP connections at the connection's address."""
    place = address_of(ready)
    if place is None:
        raise CheckSkipped(f"a {ready.kind} connection cannot be checked from here")
    host, port = place
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT_SECONDS):
            return f"{host}:{port} accepts connections"
    except OSError as error:
        raise Unreachable(
            f"no server answers at {host}:{port}: {error.strerror or error}",
            hint="is the server up, and does the network let you through?",
            connection=ready.name,
        ) from None


def address_of(ready: Connection) -> tuple[str, int] | None:
    """Return host and port of a resolved connection; None if its fields do not contain them.

    >>> from ematix_flow.declare.connections import KafkaConnection
    >>> address_of(KafkaConnection("events", bootstrap_servers="broker1:9093,broker2:9093"))
    ('broker1', 9093)
    """
    fields: dict[str, Any] = {name: getattr(ready, name) for name in ready.field_names()}
    if fields.get("bootstrap_servers"):
        host, _, port = fields["bootstrap_servers"].split(",")[0].strip().rpartition("://")[2].rpartition(":")
        return (host, int(port)) if host and port.isdigit() else (port, 9092)
    if fields.get("host") and fields.get("port"):
        return str(fields["host"]), int(fields["port"])
    url = next((str(fields[name]) for name in _URL_FIELDS if fields.get(name)), "")
    parts = urlsplit(url)
    port_number = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    return (parts.hostname, port_number) if parts.hostname and port_number else None


def _folder(path: Path, connection: Connection) -> str:
    if not path.exists():
        return _missing_folder(path, connection)
    if not path.is_dir():
        raise ConfigError(f"{path} is a file, and {connection.name!r} needs a folder", where=connection.declared_at)
    if not os.access(path, os.R_OK | os.X_OK):
        raise PermissionDenied(f"the folder {path} may not be read", hint=f"check its rights: ls -ld {path}")
    return connection.label if os.access(path, os.W_OK) else f"{connection.label}, read only"


def _bucket(ready: BucketConnection) -> str:
    """List the first object, which needs a correct address, login and bucket."""
    from ematix_flow.storage.s3_bucket import S3Bucket

    S3Bucket.of(ready).first("")
    return ready.label


def _missing_folder(path: Path, connection: Connection) -> str:
    """Accept a missing path if it can be created, else raise PermissionDenied."""
    home = next((parent for parent in path.absolute().parents if parent.exists()), Path("/"))
    if not os.access(home, os.W_OK | os.X_OK):
        raise PermissionDenied(
            f"{path} is not there, and {home} does not permit creating it",
            hint="correct the path, or the rights of that folder",
            connection=connection.name,
        )
    return f"{connection.label} is not there yet; the first load makes it"
