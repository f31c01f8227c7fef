"""A client of one Kinesis stream: its shards, the records from a position on, and sending records."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from ematix_flow.backends.kinesis.shards import Shard, ShardPosition
from ematix_flow.declare.connections import KinesisConnection
from ematix_flow.foundation.drivers import require_driver
from ematix_flow.foundation.errors import (
    BadValue,
    ConnectionFailed,
    FlowError,
    MissingTable,
    PermissionDenied,
    RunFailed,
    Unreachable,
)
from ematix_flow.foundation.redact import mask

MOST_RECORDS = 10_000
"""The most records of one request."""
PATIENCE_SECONDS = 60.0
_THROTTLED = (
    "ProvisionedThroughputExceededException", "LimitExceededException", "KMSThrottlingException", "Throttling",
    "ThrottlingException", "RequestLimitExceeded", "InternalFailure", "ServiceUnavailable", "500", "503",
)  # fmt: skip
_REFUSED = (
    "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "MissingAuthenticationTokenException",
    "IncompleteSignature", "InvalidClientTokenId", "ExpiredTokenException", "NotAuthorized", "403",
)  # fmt: skip
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0


class IteratorExpired(FlowError):
    """The error of an iterator older than five minutes; the caller requests a new one for its position."""


class _Throttled(FlowError):
    """The error of a throttled request."""


@dataclass(frozen=True)
class KinesisLogin:
    """The address of a stream and the login; it is sent to tasks."""

    stream: str
    region: str | None
    endpoint: str | None
    access_key_id: str | None
    secret_access_key: str | None = field(repr=False)

    @classmethod
    def of(cls, connection: KinesisConnection, stream: str = "") -> KinesisLogin:
        """Return the login of a connection, for its own stream or another one of the same account."""
        ready = connection.resolved()
        return cls(
            stream.strip() or ready.stream_name, ready.region, ready.endpoint, ready.access_key_id,
            ready.secret_access_key,
        )  # fmt: skip

    @property
    def at(self) -> str:
        """Return the stream's name for error messages."""
        return f"Kinesis stream {self.stream!r}" + (f" at {self.endpoint}" if self.endpoint else "")


@dataclass(frozen=True)
class ShardRecords:
    """One answer: records, the next iterator, and the lag behind the shard's end."""

    records: Sequence[Any]
    following: str | None
    """None at the end of a closed shard."""
    behind_ms: int


@dataclass(frozen=True)
class KinesisClient:
    """The requests to one stream; throttled ones are retried with growing backoff."""

    access: KinesisLogin

    def shards(self) -> list[Shard]:
        """Return every shard that is still retained, closed ones included."""
        shards: list[Shard] = []
        request: dict[str, Any] | None = {"StreamName": self.access.stream}
        while request:
            answer = self._retry_throttled(partial(self._client.list_shards, **request))
            shards += [Shard.of(item) for item in answer.get("Shards", ())]
            token = answer.get("NextToken")
            request = {"NextToken": token} if token else None
        return shards

    def describe(self) -> str:
        """Return the state of the stream."""
        answer = self._retry_throttled(lambda: self._client.describe_stream_summary(StreamName=self.access.stream), 5.0)
        return str(answer["StreamDescriptionSummary"]["StreamStatus"])

    def retention_seconds(self) -> float:
        """Return how long records are retained."""
        answer = self._retry_throttled(lambda: self._client.describe_stream_summary(StreamName=self.access.stream))
        return float(answer["StreamDescriptionSummary"]["RetentionPeriodHours"]) * 3600

    def iterator(self, shard: str, position: ShardPosition) -> str:
        """Return an iterator over the records behind a position."""
        request = {"StreamName": self.access.stream, "ShardId": shard, **position.iterator_arguments()}
        answer = self._retry_throttled(lambda: self._client.get_shard_iterator(**request))
        return str(answer["ShardIterator"])

    def records(self, iterator: str, *, most: int = MOST_RECORDS) -> ShardRecords:
        """Return the next records; raise `IteratorExpired` for an iterator that is too old."""
        answer = self._retry_throttled(
            lambda: self._client.get_records(ShardIterator=iterator, Limit=max(1, min(most, MOST_RECORDS)))
        )
        return ShardRecords(
            answer["Records"], answer.get("NextShardIterator"), int(answer.get("MillisBehindLatest") or 0)
        )

    def put(self, records: Sequence[tuple[str, bytes]]) -> int:
        """Send records (partition key, data) until each of them is accepted; return their number."""
        todo = [{"PartitionKey": key, "Data": data} for key, data in records]
        until, tries = time.monotonic() + PATIENCE_SECONDS, 0
        while True:
            sent = partial(self._client.put_records, StreamName=self.access.stream, Records=todo)
            answer = self._retry_throttled(sent)
            refused = [
                (item, answer_of)
                for item, answer_of in zip(todo, answer["Records"], strict=True)
                if answer_of.get("ErrorCode")
            ]
            if not refused:
                return len(records)
            todo = [item for item, _ in refused]
            if time.monotonic() > until:
                code = refused[0][1]["ErrorCode"]
                raise Unreachable(
                    f"{self.access.at} did not take {len(todo)} of {len(records)} record(s): {code}",
                    hint="it has too few shards for what is sent; add some, or send less",
                )
            tries += 1
            backoff_seconds(tries)

    @property
    def _client(self) -> Any:
        access = self.access
        return _client(access.region, access.endpoint, access.access_key_id, access.secret_access_key)

    def _retry_throttled(self, ask: Callable[[], Any], patience: float = PATIENCE_SECONDS) -> Any:
        until, tries = time.monotonic() + patience, 0
        while True:
            try:
                with self._translated_errors():
                    return ask()
            except _Throttled as exc:
                tries += 1
                if time.monotonic() > until:
                    raise Unreachable(
                        exc.what, hint="it has too few shards for what is asked of it, or is busy"
                    ) from exc
                backoff_seconds(tries)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

        try:
            yield
        except ClientError as error:
            raise self._to_error(error) from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise PermissionDenied(
                f"{self.access.at}: this machine has no AWS login",
                hint="set access_key_id and secret_access_key on the connection, or give the machine a role",
            ) from error
        except BotoCoreError as error:
            raise Unreachable(
                f"{self.access.at} does not answer: {mask(str(error))}", hint="check its endpoint and the network"
            ) from error

    def _to_error(self, error: Any) -> FlowError:
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = str(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))
        message = mask(str(error))
        if code == "ExpiredIteratorException":
            return IteratorExpired("the iterator is too old")
        if code == "ResourceNotFoundException":
            return MissingTable(f"{self.access.at} is not there", hint="create it, or check its name and region")
        if code in _THROTTLED or status in ("500", "503"):
            return _Throttled(f"{self.access.at} is busy: {message}")
        if code in _REFUSED or status == "403":
            return PermissionDenied(
                f"{self.access.at} refuses the login: {message}", hint="check the keys and their rights"
            )
        if code in ("ValidationException", "InvalidArgumentException"):
            return BadValue(
                f"{self.access.at} does not take this: {message}", hint="look at the record, or at the position"
            )
        return RunFailed(f"{self.access.at} answered {code or status}: {message}", hint="see the state of the stream")


def backoff_seconds(tries: int) -> None:
    """Sleep for a backoff that grows with each try, with random jitter."""
    most = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (tries - 1))
    time.sleep(random.uniform(most / 2, most))  # noqa: S311


@lru_cache(maxsize=16)
def _client(region: str | None, endpoint: str | None, access_key_id: str | None, secret: str | None) -> Any:
    """Return one client, shared by all requests with this login."""
    boto3 = require_driver("boto3", needed_by="Kinesis", package="boto3", extra="kinesis")
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    settings = Config(connect_timeout=3, read_timeout=20, retries={"total_max_attempts": 3, "mode": "standard"})
    try:
        session = boto3.session.Session()
        where = region or session.region_name or ("us-east-1" if endpoint else None)
        return session.client(
            "kinesis", region_name=where, endpoint_url=endpoint, aws_access_key_id=access_key_id,
            aws_secret_access_key=secret, config=settings,
        )  # fmt: skip
    except (BotoCoreError, ValueError) as exc:
        raise ConnectionFailed(
            f"Kinesis cannot be reached: {mask(str(exc))}",
            hint='set region = "us-east-1" or the like on the connection',
        ) from exc
