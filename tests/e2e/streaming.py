"""What the documents' streams need around them: topics and buckets by their names, and somebody who stops a stream."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from tests.e2e.samples import Database
from tests.e2e.words import worded
from tests.services.kafka import Kafka

SECONDS = 180.0
BUCKET, GROUP = worded("bike-archive"), worded("bike-readers")
EVENTS = [
    {"ride_id": 1, "rider_id": 7, "stop": "/start", "remark": "one"},
    {"ride_id": 2, "rider_id": 8, "stop": "/start", "remark": "two"},
    {"ride_id": 3, "rider_id": 7, "stop": "/end", "remark": None},
]
USERS = """
CREATE TABLE rider_plans (rider_id bigint, plan text);
INSERT INTO rider_plans VALUES (7, 'gold'), (9, 'silver');
"""
CLEAN = """
DROP SCHEMA public CASCADE; CREATE SCHEMA public; DROP SCHEMA IF EXISTS telemetry CASCADE;
DROP SCHEMA IF EXISTS ematix_flow CASCADE;
"""
LEVELS = """seen_at,city,level_no,dock,bikes,slots
2026-03-02T14:30:01Z,Oslo,0,4500,1.25,1.30
2026-03-02T14:30:40Z,Oslo,0,4505,0.95,1.00
2026-03-02T14:30:41Z,Oslo,7,4505,9.95,9.00
2026-03-02T14:30:42Z,Turku,0,450,0.15,0.20
2026-03-02T14:31:00Z,Oslo,0,4500,1.35,1.40
"""


@contextmanager
def stopped(when: Callable[[], Any]) -> Iterator[None]:
    """Stop the stream that runs inside as an operator does, by SIGTERM, once something is so."""
    over = threading.Event()
    before = signal.signal(signal.SIGTERM, _nothing)  # one that comes late harms nobody

    def watch() -> None:
        with suppress(AssertionError):  # what is missing is told by whoever looks at it afterwards
            eventually(lambda: over.is_set() or when())
        while not over.wait(0.1):
            if signal.getsignal(signal.SIGTERM) is not _nothing:
                os.kill(os.getpid(), signal.SIGTERM)
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGTERM, before)


def _nothing(*_: Any) -> None:
    pass


def eventually(when: Callable[[], Any]) -> None:
    """Wait until something is so; what cannot be looked at is not there yet."""
    deadline = time.monotonic() + SECONDS
    while True:
        with suppress(Exception):
            if when():
                return
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.1)


def has(database: Database, table: str, rows: int) -> Callable[[], bool]:
    """Whether a table has so many rows."""
    return lambda: database.rows(f"SELECT count(*) FROM {table}") == [(rows,)]


def users(database: Database, table: str = "public.rides") -> list[tuple[Any, ...]]:
    """What of the events is in a table."""
    return database.rows(f"SELECT ride_id, rider_id, stop, remark FROM {table} ORDER BY ride_id")


LOADED = [tuple(event.values()) for event in EVENTS]


def fill(kafka: Kafka, topic: str, values: Sequence[bytes] = tuple(json.dumps(one).encode() for one in EVENTS)) -> None:
    """A topic that holds these messages and no others, and a group that has read none; in the words of the samples."""
    from confluent_kafka import KafkaException

    from tests.streams.kafka_topics import admin, new_topic, send

    client, topic = admin(kafka), worded(topic)
    for asked in (client.delete_topics([topic]), client.delete_consumer_groups([GROUP])):
        for done in asked.values():
            with suppress(KafkaException):  # there was none
                done.result(30)
    new_topic(kafka, name=topic)
    send(kafka, topic, [{"value": worded(value.decode()).encode()} for value in values])


def bucket(url: str) -> Any:
    """A client of the bucket that the documents name, which is empty."""
    import boto3
    from botocore.config import Config

    from tests.services.object_stores import S3_ACCESS

    keys = {name.lower(): value for name, value in S3_ACCESS.items()}
    client = boto3.client(
        "s3", endpoint_url=url, region_name="us-east-1", config=Config(s3={"addressing_style": "path"}), **keys
    )
    if BUCKET not in [one["Name"] for one in client.list_buckets()["Buckets"]]:
        client.create_bucket(Bucket=BUCKET)
    for key in keys_of(client, ""):
        client.delete_object(Bucket=BUCKET, Key=key)
    return client


def lake_at(url: str, *, file_format: str) -> Any:
    """The bucket as a connection, with the keys that the documents name."""
    from ematix_flow import ObjectStoreS3Connection

    return ObjectStoreS3Connection(
        name="cellar", endpoint=url, bucket=BUCKET, region="us-east-1", access_key_id="${AWS_ACCESS_KEY_ID}",
        secret_access_key="${AWS_SECRET_ACCESS_KEY}", format=file_format,
    )  # fmt: skip


def put(client: Any, key: str, text: str) -> None:
    """Put a file into the bucket; its name and its text are in the words of the twins."""
    client.put_object(Bucket=BUCKET, Key=worded(key), Body=worded(text).encode())


def lines_of(client: Any, prefix: str) -> list[str]:
    """The lines of the CSV files below a prefix, sorted."""
    files = [key for key in keys_of(client, prefix) if key.endswith(".csv")]
    texts = [client.get_object(Bucket=BUCKET, Key=key)["Body"].read().decode() for key in files]
    return sorted(line for text in texts for line in text.splitlines())


def keys_of(client: Any, prefix: str) -> list[str]:
    """The objects below a prefix, which is in the words of the twins."""
    found = client.list_objects_v2(Bucket=BUCKET, Prefix=worded(prefix)).get("Contents", ())
    return [one["Key"] for one in found if not one["Key"].endswith("/")]


def parquet(client: Any, prefix: str) -> tuple[list[dict[str, Any]], set[str]]:
    """Rows and compressions of the Parquet files below a prefix."""
    import io

    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = []
    compressions = set()
    for key in keys_of(client, prefix):
        if key.endswith(".parquet"):
            file = pq.ParquetFile(io.BytesIO(client.get_object(Bucket=BUCKET, Key=key)["Body"].read()))
            rows += file.read().to_pylist()
            compressions.add(file.metadata.row_group(0).column(0).compression)
    return rows, compressions


def metrics(port: str) -> str:
    """What a scraper gets."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return str(answer.read().decode())
