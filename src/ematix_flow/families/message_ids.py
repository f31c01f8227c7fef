"""Ids for messages that a stream sends: the same when a batch is sent again, so that consumers can drop the second one."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.stream import BrokerJob
from ematix_flow.families.lake.session import text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ATTRIBUTE = "ematix-message-id"
"""Where a broker that gives its own ids carries ours."""
KEY = "message_key"
"""The header that carries the key where a broker has no place for one."""
COLUMNS = (
    "CAST(key AS BINARY) AS key",
    "CAST(value AS BINARY) AS value",
    "CAST(headers AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
)
"""What a frame of messages is read as."""
_LONGEST_WRITER = 150
_DIGEST, _NUMBER = "_flow_digest", "_flow_number"
HEADER_BYTES = len(ATTRIBUTE) + 255 + 10
"""What the header adds to a message, at most."""


def messages(
    job: BrokerJob, batches: Iterator[Any]
) -> Iterator[tuple[str, bytes | None, bytes, list[tuple[str, bytes]]]]:
    """Id, key, value and headers of every row of one task."""
    ids = MessageIds(job.writer, job.batch, _part())
    for batch in batches:
        columns = [batch.column(batch.schema.get_field_index(name)).to_pylist() for name in ("key", "value", "headers")]
        for key, value, headers in zip(*columns, strict=True):
            pairs = [(item["key"], item["value"] or b"") for item in headers or ()]
            yield ids.of(key, value), key, value or b"", pairs


class MessageIds:
    """`writer/batch/part-content-number` for the messages of one task.

    A batch that is sent again may have its rows in another order; its rows are named by what they hold, so that no two
    different messages ever share an id, and equal ones are numbered.

    >>> ids = MessageIds("orders@1::queue", 7, 0)
    >>> first, second, other = ids.of(None, b"a"), ids.of(None, b"a"), ids.of(None, b"b")
    >>> first.rpartition("-")[0] == second.rpartition("-")[0] != other.rpartition("-")[0]
    True
    """

    def __init__(self, writer: str, batch: int, part: int) -> None:
        self._prefix = f"{_short(writer)}/{batch}/{part}"
        self._seen: dict[str, int] = {}

    def of(self, key: bytes | None, value: bytes | None) -> str:
        """The id of the next message."""
        digest = blake2b(value or b"", key=blake2b(key or b"", digest_size=32).digest(), digest_size=12).hexdigest()
        number = self._seen.get(digest, 0)
        self._seen[digest] = number + 1
        return f"{self._prefix}-{digest}-{number}"


def with_ids(messages: DataFrame, job: BrokerJob) -> DataFrame:
    """The messages with their ids as a header, for a writer of Spark's own; made in the same way, by digests of Spark's.

    Only the digests go through Python, which counts those that are equal: the messages stay where they are.
    """
    from pyspark.sql import functions as f

    known = messages.withColumn(_DIGEST, f.xxhash64("key", "value"))
    known = known.withColumn(_NUMBER, _counting_equals()(f.col(_DIGEST)))
    prefix = text(f"{_short(job.writer)}/{job.batch}/")
    name = f"concat({prefix}, spark_partition_id(), '-', lower(hex({_DIGEST})), '-', {_NUMBER})"
    ours = f"named_struct('key', {text(ATTRIBUTE)}, 'value', CAST({name} AS BINARY))"
    return known.selectExpr("key", "value", f"array_append(coalesce(headers, array()), {ours}) AS headers")


def _counting_equals() -> Any:
    """A function of the tasks: how many rows with the same digest came before."""
    import pyarrow as pa
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # its stubs forgot it

    def counted(digests: Iterator[pa.Array]) -> Iterator[pa.Array]:
        seen: dict[int, int] = {}
        for some in digests:
            numbers = []
            for digest in some.to_pylist():
                numbers.append(number := seen.get(digest, 0))
                seen[digest] = number + 1
            yield pa.array(numbers, pa.int32())

    # Spark reads what kind of function this is from the types themselves, and annotations here are only text.
    counted.__annotations__ = {"digests": Iterator[pa.Array], "return": Iterator[pa.Array]}
    return arrow_udf(counted, "INT").asNondeterministic()


def _short(writer: str) -> str:
    """Brokers take ids of up to 255 bytes."""
    return writer if len(writer) <= _LONGEST_WRITER else blake2b(writer.encode(), digest_size=16).hexdigest()


def _part() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return int(context.partitionId()) if context is not None else 0
