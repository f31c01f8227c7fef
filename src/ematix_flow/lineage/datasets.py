"""Dataset names of OpenLineage: a namespace for the system, and the name of the table in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ematix_flow.declare.connections import (
    BigQueryConnection,
    Connection,
    DeltaLocalConnection,
    RedshiftConnection,
    SnowflakeConnection,
)
from ematix_flow.declare.connections.databases import FileDatabaseConnection, ServerConnection
from ematix_flow.declare.connections.lakes import BucketConnection, ObjectStoreLocalConnection
from ematix_flow.foundation.errors import FlowError
from ematix_flow.foundation.redact import mask


@dataclass(frozen=True, order=True)
class Dataset:
    """A table in any system."""

    namespace: str
    name: str


def dialect_of(connection: Any) -> str:
    """Return the SQL dialect of queries on a connection; lakes and files are read by Spark."""
    return connection.dialect if isinstance(connection, Connection) else "spark"


def dataset_of(connection: Any, parts: tuple[str, ...]) -> Dataset:
    """Return the dataset of `schema.table` (or `table`) on a connection; it never contains a password."""
    known = _without_references(connection)
    kind = str(getattr(known, "kind", "")) or "unknown"
    if isinstance(known, ServerConnection):
        return _on_server(known, parts)
    if isinstance(known, RedshiftConnection):
        return Dataset(
            f"redshift://{_cluster(known.host)}:{known.port}", ".".join((known.database, *_schema(known, parts)))
        )
    if isinstance(known, FileDatabaseConnection):
        return Dataset(f"{kind}://{_absolute(known.path)}", ".".join(_schema(known, parts)))
    if isinstance(known, (DeltaLocalConnection, ObjectStoreLocalConnection)):
        return Dataset("file", "/".join((_absolute(known.path), *parts)))
    if isinstance(known, BucketConnection):
        prefix = str(known.fields.get("prefix", "")).strip("/")
        return Dataset(f"s3://{known.bucket}", "/".join(part for part in (prefix, *parts) if part))
    if isinstance(known, SnowflakeConnection):
        outer = [part for part in (known.database, known.schema) if part]
        return Dataset(f"snowflake://{known.account}", ".".join([*outer[: max(0, 3 - len(parts))], *parts]))
    if isinstance(known, BigQueryConnection):
        return Dataset("bigquery", ".".join([known.project, known.dataset][: max(0, 3 - len(parts))] + list(parts)))
    name = getattr(known, "name", str(known))
    return Dataset(mask(f"{kind}://{name}"), ".".join(parts))


def _on_server(known: ServerConnection, parts: tuple[str, ...]) -> Dataset:
    scheme = "postgres" if known.kind == "postgres" else known.kind
    try:
        address = known.address
        host, port, database = address.host, str(address.port), address.database
    except (FlowError, ValueError):  # its URL is a reference that cannot be resolved here
        return Dataset(f"{scheme}://{known.name}", ".".join(_schema(known, parts)))
    # In MySQL a schema is a database.
    inside = parts if known.kind == "mysql" and len(parts) > 1 else (database, *_schema(known, parts))
    return Dataset(mask(f"{scheme}://{host}:{port}"), mask(".".join(part for part in inside if part)))


def _cluster(host: str) -> str:
    """Return `cluster.region` of a Redshift host at Amazon; any other host unchanged."""
    parts = host.split(".")
    return f"{parts[0]}.{parts[2]}" if host.endswith(".redshift.amazonaws.com") and len(parts) > 4 else host


def _schema(known: Connection, parts: tuple[str, ...]) -> tuple[str, ...]:
    own = known.default_schema
    return (own, *parts) if len(parts) == 1 and own else parts


def _without_references(connection: Any) -> Any:
    if not isinstance(connection, Connection):
        return connection
    try:
        return connection.resolved()
    except FlowError:  # a name that contains a reference is better than none
        return connection


def _absolute(path: str) -> str:
    return path if path == ":memory:" or "${" in path else str(Path(path).expanduser().resolve())
