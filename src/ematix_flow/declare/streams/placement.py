"""The systems that a stream reads and writes, and the keyword for a place in each."""

from __future__ import annotations

from typing import Any

from ematix_flow.declare.connections import Connection
from ematix_flow.declare.endpoints import Source
from ematix_flow.foundation.errors import DeclarationError, WrongType
from ematix_flow.foundation.secrets import references_in

TABLE, PREFIX = "table", "prefix"
TOPIC, QUEUE, KEY_PREFIX = "topic", "queue", "partition_key_prefix"
PLACES = (TABLE, TOPIC, QUEUE, KEY_PREFIX, PREFIX)
BROKER_PLACES = (TOPIC, QUEUE, KEY_PREFIX)

DELTA = ("delta_local", "delta_s3")
FILES = ("object_store_local", "object_store_s3")
DATABASES = ("postgres", "mysql", "sqlite", "duckdb", "snowflake", "bigquery", "redshift")
BROKERS = ("kafka", "rabbitmq", "pubsub", "kinesis")
READ_FORMATS = {"csv_read_options": "csv", "json_read_options": "json_lines"}
"""The read options of a source, with the file format that each is for."""
QUEUES = ("rabbitmq", "pubsub")
"""Brokers without offsets, where every message is acknowledged."""
WAREHOUSES = ("snowflake", "bigquery", "redshift")
REGISTRIES = ("schema_registry", "glue_schema_registry")
NOT_TABLES = (*BROKERS, *REGISTRIES)

SOURCES = (*BROKERS, *FILES, *DELTA)
PLACE_OF: dict[str, str] = {
    **dict.fromkeys((*DATABASES, *DELTA), TABLE),
    **dict.fromkeys(FILES, PREFIX),
    "kafka": TOPIC,
    "pubsub": TOPIC,
    "rabbitmq": QUEUE,
    "kinesis": KEY_PREFIX,
}
_EXAMPLES = {
    TABLE: 'target_table=("public", "events")',
    PREFIX: 'target_prefix="events/raw"',
    TOPIC: 'target_topic="events"',
    QUEUE: 'target_queue="events"',
    KEY_PREFIX: 'target_partition_key_prefix="events"',
}


def kind_of(connection: Any) -> str | None:
    """Return the kind of a connection; None for a name, whose kind is known only after its lookup."""
    return connection.kind if isinstance(connection, Connection) else None


def check_connection(connection: Any, *, keyword: str) -> None:
    """Raise a WrongType unless the value is a connection or a name."""
    if not isinstance(connection, (str, Connection)) or not connection:
        raise WrongType(
            f"{keyword}= takes a connection or the name of one, not {connection!r}",
            hint="declare it with @ematix.connection, or name one that flow connections list shows",
            keyword=keyword,
        )


def check_source(connection: Any, *, keyword: str) -> None:
    """Raise unless the connection is of a kind that can be read continuously."""
    check_connection(connection, keyword=keyword)
    kind = kind_of(connection)
    if kind is not None and kind in (*DATABASES, *REGISTRIES):
        raise DeclarationError(
            f"a {kind} connection is no source of a stream",
            hint=f"a stream reads {', '.join(SOURCES)}; load the rest with @ematix.pipeline",
            keyword=keyword,
        )


def check_read_options(source: Source, *, keyword: str) -> None:
    """Raise for read options that do not match the format of the source's files."""
    connection = source.connection
    holds = getattr(connection, "format", None) if kind_of(connection) in FILES else kind_of(connection)
    for option, wanted in READ_FORMATS.items():
        if getattr(source, option) and holds and holds != wanted and not references_in(holds):
            raise DeclarationError(
                f"{option} is for {wanted} files, and {source.query!r} holds {holds}"
                if kind_of(connection) in FILES
                else f"{option} is for files, and this source is {holds}",
                hint="leave it out",
                keyword=keyword,
            )


def check_place(kind: str | None, places: tuple[str, ...], *, declared: bool) -> None:
    """Raise unless a target names one place of the right sort; `declared` if its table is a class."""
    wanted = PLACE_OF.get(kind or "")
    if len(places) > 1:
        raise DeclarationError(f"a target has one place, not {' and '.join(places)}", keyword=_keyword(places[1]))
    if kind in REGISTRIES:
        raise DeclarationError(f"a {kind} connection is no target", keyword="target")
    if kind in WAREHOUSES:
        raise DeclarationError(
            f"a stream does not write to {kind}",
            hint=f"it writes to {', '.join(sorted(set(PLACE_OF) - set(WAREHOUSES)))}",
            keyword="target",
        )
    if not places:
        if wanted == KEY_PREFIX:  # the connection names the stream, and any partition key works
            return
        raise DeclarationError(
            f"a {kind} target needs its {wanted}" if wanted else "the target does not say where its rows go",
            hint=f"for example {_EXAMPLES[wanted or TABLE]}",
            keyword="target",
        )
    if wanted is None or places[0] == wanted or (declared and wanted == PREFIX):
        return
    raise DeclarationError(
        f"a {kind} target has no {places[0]}", hint=f"for example {_EXAMPLES[wanted]}", keyword=_keyword(places[0])
    )


def _keyword(place: str) -> str:
    return f"target_{place}"
