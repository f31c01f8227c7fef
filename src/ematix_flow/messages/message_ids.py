"""Ids for the messages a stream sends: equal when a batch is sent again, so that consumers can drop duplicates."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.stream import BrokerJob
from ematix_flow.foundation.lazy_imports import f, pa
from ematix_flow.sql.spark_text import text_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ATTRIBUTE = "ematix-message-id"
"""The attribute or header with our id, for brokers that assign ids of their own."""
KEY = "message_key"
"""The header that holds the key, for brokers without message keys."""
COLUMNS = (
    "CAST(key AS BINARY) AS key",
    "CAST(value AS BINARY) AS value",
    "CAST(headers AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
)
"""The select expressions that cast a frame of messages to the types of key, value and headers."""
_LONGEST_WRITER = 150
_DIGEST, _NUMBER = "_flow_digest", "_flow_number"
HEADER_BYTES = len(ATTRIBUTE) + 255 + 10
"""The largest number of bytes that the header adds to a message."""


def messages(
    job: BrokerJob, batches: Iterator[Any]
) -> Iterator[tuple[str, bytes | None, bytes, list[tuple[str, bytes]]]]:
    """Yield id, key, value and headers of every row of one task."""
    ids = MessageIds(job.writer, job.batch, _part())
    for batch in batches:
        columns = [batch.column(batch.schema.get_field_index(name)).to_pylist() for name in ("key", "value", "headers")]
        for key, value, headers in zip(*columns, strict=True):
            pairs = [(item["key"], item["value"] or b"") for item in headers or ()]
            yield ids.of(key, value), key, value or b"", pairs


class MessageIds:
    """Ids `writer/batch/part-content-number` for the messages of one task.

    A batch that is sent again may have its rows in another order. Ids are therefore derived from the content, so that
    no two different messages share an id, and equal messages are numbered.

    >>> ids = MessageIds("orders@1::queue", 7, 0)
    >>> first, second, other = ids.of(None, b"a"), ids.of(None, b"a"), ids.of(None, b"b")
    >>> first.rpartition("-")[0] == second.rpartition("-")[0] != other.rpartition("-")[0]
    True
    """

    def __init__(self, writer: str, batch: int, part: int) -> None:
        self._prefix = f"{_short(writer)}/{batch}/{part}"
        self._seen: dict[str, int] = {}

    def of(self, key: bytes | None, value: bytes | None) -> str:
        """Return the id of the next message."""
        digest = blake2b(value or b"", key=blake2b(key or b"", digest_size=32).digest(), digest_size=12).hexdigest()
        number = self._seen.get(digest, 0)
        self._seen[digest] = number + 1
        return f"{self._prefix}-{digest}-{number}"


def with_ids(messages: DataFrame, job: BrokerJob) -> DataFrame:
    """Return the messages with their ids as a header, for one of Spark's own writers.

    The ids are built in the same way, from two of Spark's xxhash64 with different seeds. Only the digests pass through
    Python, which numbers equal ones; the messages stay in the JVM.
    """
    # With one hash of 64 bits, different messages would share a digest now and then, and get other numbers when they
    # are sent again in another order. A hash skips NULLs, so it also takes whether there is a key and a value.
    content = (f.col("key").isNull(), f.col("key"), f.col("value").isNull(), f.col("value"))
    halves = [f.lpad(f.lower(f.hex(f.xxhash64(f.lit(seed), *content))), 16, "0") for seed in (0, 1)]
    known = messages.withColumn(_DIGEST, f.concat(*halves))
    known = known.withColumn(_NUMBER, _counting_equals()(f.col(_DIGEST)))
    prefix = text_literal(f"{_short(job.writer)}/{job.batch}/")
    name = f"concat({prefix}, spark_partition_id(), '-', {_DIGEST}, '-', {_NUMBER})"
    ours = f"named_struct('key', {text_literal(ATTRIBUTE)}, 'value', CAST({name} AS BINARY))"
    return known.selectExpr("key", "value", f"array_append(coalesce(headers, array()), {ours}) AS headers")


def _counting_equals() -> Any:
    """Return a UDF that gives the number of earlier rows of the task with the same digest."""
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # missing in pyspark's stubs

    def counted(digests: Iterator[pa.Array]) -> Iterator[pa.Array]:
        seen: dict[int, int] = {}
        for some in digests:
            numbers = []
            for digest in some.to_pylist():
                numbers.append(number := seen.get(digest, 0))
                seen[digest] = number + 1
            yield pa.array(numbers, pa.int32())

    # Spark infers the kind of UDF from real type objects, while annotations in this module are only strings.
    counted.__annotations__ = {"digests": Iterator[pa.Array], "return": Iterator[pa.Array]}
    return arrow_udf(counted, "INT").asNondeterministic()


def _short(writer: str) -> str:
    """Return the writer's name, hashed if it is long: brokers accept ids of up to 255 bytes."""
    return writer if len(writer) <= _LONGEST_WRITER else blake2b(writer.encode(), digest_size=16).hexdigest()


def _part() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return int(context.partitionId()) if context is not None else 0
