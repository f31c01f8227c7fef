"""Rows of the state as blobs in PostgreSQL, written and read by Spark tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.postgres.errors import translate
from ematix_flow.backends.postgres.session import CONNECT_TIMEOUT_SECONDS
from ematix_flow.contract.state import missing_part
from ematix_flow.dataplane.arrow_values import row_batch
from ematix_flow.dataplane.spark_tasks import attempt_number
from ematix_flow.dataplane.task_errors import to_carried_error
from ematix_flow.foundation.lazy_imports import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

BYTES_A_PIECE = 8 * 1024 * 1024
"""The size of a blob before compression."""
_PIECES_A_TASK = 4
_Task = Callable[[Iterable[Any]], Iterator[Any]]


@dataclass(frozen=True, repr=False)
class StateBlobs:
    """The blobs of one stream; tasks receive it with the address, password included."""

    address: str
    table: str
    """The quoted full name of the table."""
    stream: str

    def write(self, frame: DataFrame, prefix: str, version: int, *, size: int = BYTES_A_PIECE) -> list[tuple[str, int]]:
        """Write all rows; return keys and row counts of the blobs, only of task attempts that Spark counts."""
        work = _translated_errors(self._writing(prefix, version, size))
        outcome = frame.hint("rebalance").mapInArrow(work, "piece STRING, rows BIGINT").collect()
        return [(row["piece"], row["rows"]) for row in outcome]

    def read(self, spark: SparkSession, keys: Sequence[str], schema: StructType) -> DataFrame:
        """Return the rows of these blobs, which Spark reads lazily."""
        if not keys:
            return spark.createDataFrame([], schema)
        tasks = -(-len(keys) // _PIECES_A_TASK)
        return spark.range(0, len(keys), 1, tasks).mapInArrow(_translated_errors(self._reading(tuple(keys))), schema)

    def _writing(self, prefix: str, version: int, size: int) -> _Task:
        statement = (
            f"INSERT INTO {self.table} (pipeline_name, group_key, state_blob, state_version, updated_at) "
            "VALUES (%s, %s, %s, %s, now())"
        )

        def write(batches: Iterable[Any]) -> Iterator[Any]:
            attempt = attempt_number()  # a retried or speculative task writes under keys of its own
            blobs: list[tuple[str, int]] = []
            with ExitStack() as open_until:
                connection: Any = None
                for piece in split_rows(batches, size):
                    connection = connection or open_until.enter_context(self._connected())
                    key = f"{prefix}/{attempt}/{len(blobs):06}"
                    connection.execute(statement, (self.stream, key.encode(), encode_table(piece), version))
                    blobs.append((key, piece.num_rows))
            for key, rows in blobs:
                yield row_batch({"piece": key, "rows": rows})

        return write

    def _reading(self, keys: Sequence[str]) -> _Task:
        statement = f"SELECT state_blob FROM {self.table} WHERE pipeline_name = %s AND group_key = %s"

        def read(numbers: Iterable[Any]) -> Iterator[Any]:
            with ExitStack() as open_until:
                connection: Any = None
                for number in (item for batch in numbers for item in batch.column(0).to_pylist()):
                    connection = connection or open_until.enter_context(self._connected())
                    parameters = (self.stream, keys[number].encode())
                    row = connection.execute(statement, parameters, binary=True).fetchone()
                    if row is None:
                        raise missing_part(keys[number], self.table)
                    yield from pa.ipc.open_stream(row[0])

        return read

    def _connected(self) -> Any:
        import psycopg

        return psycopg.connect(
            self.address, connect_timeout=CONNECT_TIMEOUT_SECONDS, application_name="ematix-flow", autocommit=True
        )


def split_rows(batches: Iterable[Any], size: int) -> Iterator[Any]:
    """Yield tables of about this many bytes, from small batches together and from parts of large ones."""
    held: list[Any] = []
    weight = 0
    for batch in batches:
        for part in _split_batch(batch, size):
            held.append(part)
            weight += part.nbytes
            if weight >= size:
                yield pa.Table.from_batches(held)
                held, weight = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _split_batch(batch: Any, size: int) -> Iterator[Any]:
    if not batch.num_rows:
        return
    rows = max(1, batch.num_rows * size // max(batch.nbytes, 1))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def encode_table(table: Any) -> bytes:
    """Return a compressed Arrow stream, which includes its schema."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return bytes(out.getvalue().to_pybytes())


def _translated_errors(work: _Task) -> _Task:
    """Return the task with errors of the database driver translated; rows of the state are not counted for the run."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        try:
            yield from work(batches)
        except Exception as exc:
            raise to_carried_error(exc, translate) from exc

    return run
