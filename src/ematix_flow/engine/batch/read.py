"""Tables and queries of a connection as Spark dataframes, for users who write PySpark."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.catalog import backend_for, batch_refusal
from ematix_flow.config.resolve import resolve
from ematix_flow.engine.batch.context import parallelism
from ematix_flow.engine.batch.source import reads_until
from ematix_flow.engine.cluster.executors import task_requirements
from ematix_flow.engine.session.session import spark_session
from ematix_flow.sql.expressions import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_open = ExitStack()  # files and views of frames that users hold stay until the process ends


def read_frame(connection: Any, table_or_query: str) -> DataFrame:
    """Return `read("lake", "raw.orders")` or `read("warehouse", "SELECT …")` as a dataframe.

    Inside a run, several tasks read a large table from one snapshot, which ends with the run. Elsewhere it is unknown
    when the frame is no longer needed, and an open snapshot keeps a database from cleaning up: there one task reads.
    """
    declared = resolve(connection).connection
    backend = backend_for(declared)
    if backend.batch_source is None:
        raise batch_refusal(backend, reading=True)
    open_until = reads_until.get()
    spark = spark_session(
        backend.jars, tasks=lambda: task_requirements([declared], []), is_in_use=open_until is not None
    )
    query = table_or_query
    if " " not in query.strip():
        query = "SELECT * FROM " + ".".join(quote(part, backend.dialect) for part in query.strip().split("."))
    source = backend.batch_source(declared)
    tasks = parallelism() if open_until is not None else 1
    return source.read(source.plan(query, parallelism=tasks), spark, open_until or _open)
