"""What a stream reads and the brokers it writes to, as other programs fill and read them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import (
    DeltaLocalConnection,
    DeltaS3Connection,
    KafkaConnection,
    KinesisConnection,
    ObjectStoreLocalConnection,
    ObjectStoreS3Connection,
    PubSubConnection,
    RabbitMQConnection,
)
from tests.harness.arrivals import put_whole

Document = dict[str, Any]


class Feed(ABC):
    """One place that a stream reads."""

    query: str

    @property
    @abstractmethod
    def connection(self) -> Any:
        """The connection that streams use."""

    @abstractmethod
    def send(self, documents: Sequence[Document]) -> None:
        """Put documents in, by the system's own client."""


class Broker(Feed):
    """A place that takes messages, too."""

    @property
    @abstractmethod
    def target(self) -> dict[str, Any]:
        """The keywords of a stream that writes here."""

    @abstractmethod
    def received(self, at_least: int) -> list[Document]:
        """Everything that was sent here, by the system's own client."""


class KafkaFeed(Broker):
    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        from tests.streams.kafka_topics import new_topic

        self._kafka = request.getfixturevalue("kafka")
        self.query = new_topic(self._kafka, partitions=2)

    @property
    def connection(self) -> Any:
        return KafkaConnection("events", bootstrap_servers=self._kafka.open, group_id=self.query)

    @property
    def target(self) -> dict[str, Any]:
        return {"target": self.connection, "target_topic": self.query}

    def send(self, documents: Sequence[Document]) -> None:
        from tests.streams.kafka_topics import send

        send(self._kafka, self.query, [{"value": json.dumps(one).encode()} for one in documents])

    def received(self, at_least: int) -> list[Document]:
        from tests.streams.kafka_topics import everything

        return [json.loads(one.value()) for one in everything(self._kafka, self.query)]


class RabbitFeed(Broker):
    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        from tests.streams.rabbit_queues import new_queue

        self._url = request.getfixturevalue("rabbitmq_url")
        self.query = new_queue(self._url)

    @property
    def connection(self) -> Any:
        return RabbitMQConnection("events", amqp_url=self._url)

    @property
    def target(self) -> dict[str, Any]:
        return {"target": self.connection, "target_queue": self.query}

    def send(self, documents: Sequence[Document]) -> None:
        from tests.streams.rabbit_queues import publish

        publish(self._url, self.query, [json.dumps(one) for one in documents])

    def received(self, at_least: int) -> list[Document]:
        from tests.streams.rabbit_queues import taken

        return [json.loads(body) for _, body in taken(self._url, self.query, at_least=at_least)]


class PubSubFeed(Broker):
    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        from tests.streams.pubsub_topics import Project

        self._project = Project(request.getfixturevalue("pubsub_endpoint"))
        self._topic = self._project.new_topic()
        self.query = self._project.new_subscription(self._topic)

    @property
    def connection(self) -> Any:
        from tests.services.pubsub import PROJECT

        return PubSubConnection("events", project_id=PROJECT, endpoint=self._project.endpoint, anonymous_auth=True)

    @property
    def target(self) -> dict[str, Any]:
        return {"target": self.connection, "target_topic": self._topic}

    def send(self, documents: Sequence[Document]) -> None:
        self._project.publish(self._topic, [json.dumps(one) for one in documents])

    def received(self, at_least: int) -> list[Document]:
        return [json.loads(one.data) for one in self._project.taken(self.query, at_least=at_least)]


class KinesisFeed(Broker):
    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        import boto3

        from tests.services.kinesis import ACCESS, REGION

        self._url, self.query = request.getfixturevalue("kinesis_url"), f"s-{folder.name}"[-60:]
        self._client: Any = boto3.client(
            "kinesis", endpoint_url=self._url, region_name=REGION, aws_access_key_id=ACCESS["access_key_id"],
            aws_secret_access_key=ACCESS["secret_access_key"],
        )  # fmt: skip
        self._client.create_stream(StreamName=self.query, ShardCount=2)
        self._client.get_waiter("stream_exists").wait(
            StreamName=self.query, WaiterConfig={"Delay": 1, "MaxAttempts": 30}
        )

    @property
    def connection(self) -> Any:
        from tests.services.kinesis import ACCESS, REGION

        return KinesisConnection("events", stream_name=self.query, region=REGION, endpoint=self._url, **ACCESS)

    @property
    def target(self) -> dict[str, Any]:
        return {"target": self.connection, "target_partition_key_prefix": "p"}

    def send(self, documents: Sequence[Document]) -> None:
        records = [{"Data": json.dumps(one).encode(), "PartitionKey": f"k{one['id']}"} for one in documents]
        assert self._client.put_records(StreamName=self.query, Records=records)["FailedRecordCount"] == 0

    def received(self, at_least: int) -> list[Document]:
        found = []
        for shard in self._client.list_shards(StreamName=self.query)["Shards"]:
            place = self._client.get_shard_iterator(
                StreamName=self.query, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
            )
            told = self._client.get_records(ShardIterator=place["ShardIterator"], Limit=10_000)
            found += [json.loads(one["Data"]) for one in told["Records"]]
        return found


class FilesFeed(Feed):
    query = "incoming"

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        self._folder, self._number = folder / "feed", 0
        (self._folder / self.query).mkdir(parents=True)

    @property
    def connection(self) -> Any:
        return ObjectStoreLocalConnection("events", path=str(self._folder), format="json_lines")

    def send(self, documents: Sequence[Document]) -> None:
        self._number += 1
        put_whole(self._folder / self.query / f"{self._number}.jsonl", _lines(documents))


def _lines(documents: Sequence[Document]) -> str:
    return "".join(f"{json.dumps(one)}\n" for one in documents)


class FilesS3Feed(Feed):
    query = "incoming"

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        from tests.harness.buckets import TestBucket

        self._bucket, self._number = TestBucket.at(request.getfixturevalue("s3_url"), "feed"), 0

    @property
    def connection(self) -> Any:
        return ObjectStoreS3Connection("events", format="json_lines", **self._bucket.fields)

    def send(self, documents: Sequence[Document]) -> None:
        self._number += 1
        self._bucket.put(f"{self.query}/{self._number}.jsonl", _lines(documents).encode())


class DeltaFeed(Feed):
    query = "public.incoming"

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        self._folder = folder / "feed"
        self.send([])

    @property
    def connection(self) -> Any:
        return DeltaLocalConnection("events", path=str(self._folder))

    def send(self, documents: Sequence[Document]) -> None:
        path = self._folder / "public" / "incoming"
        path.parent.mkdir(parents=True, exist_ok=True)
        _append(str(path), documents)


class DeltaS3Feed(Feed):
    query = "public.incoming"

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        from tests.harness.buckets import TestBucket

        self._bucket = TestBucket.at(request.getfixturevalue("s3_url"), "feed")
        self.send([])

    @property
    def connection(self) -> Any:
        return DeltaS3Connection("events", **self._bucket.fields)

    def send(self, documents: Sequence[Document]) -> None:
        from tests.services.object_stores import PLACE

        address = f"s3://{PLACE}/{self._bucket.prefix}/public/incoming"
        _append(address, documents, storage_options=self._bucket.storage_options)


def _append(address: str, documents: Sequence[Document], **options: Any) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    fields = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64())])
    write_deltalake(address, pa.Table.from_pylist(list(documents), fields), mode="append", **options)


FEEDS: dict[str, type[Feed]] = {
    "kafka": KafkaFeed, "rabbitmq": RabbitFeed, "pubsub": PubSubFeed, "kinesis": KinesisFeed, "files": FilesFeed,
    "files_s3": FilesS3Feed, "delta": DeltaFeed, "delta_s3": DeltaS3Feed,
}  # fmt: skip
"""One for each backend that streams can read; every backend with a stream source has one (test_stream_pairs.py)."""
BROKERS = tuple(name for name, kind in FEEDS.items() if issubclass(kind, Broker))
