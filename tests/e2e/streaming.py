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
from tests.services.kafka import Kafka

SECONDS = 180.0
BUCKET = "ematix-archive"
EVENTS = [
    {"event_id": 1, "user_id": 7, "page": "/start", "payload": "one"},
    {"event_id": 2, "user_id": 8, "page": "/start", "payload": "two"},
    {"event_id": 3, "user_id": 7, "page": "/end", "payload": None},
]
USERS = """
CREATE TABLE dim_users (user_id bigint, tier text);
INSERT INTO dim_users VALUES (7, 'gold'), (9, 'silver');
"""
CLEAN = """
DROP SCHEMA public CASCADE; CREATE SCHEMA public; DROP SCHEMA IF EXISTS marketdata CASCADE;
DROP SCHEMA IF EXISTS ematix_flow CASCADE;
"""
OPTIONS = """ts,underlying,days_to_expiry,strike,bid,ask
2026-03-02T14:30:01Z,SPXW,0,4500,1.25,1.30
2026-03-02T14:30:40Z,SPXW,0,4505,0.95,1.00
2026-03-02T14:30:41Z,SPXW,7,4505,9.95,9.00
2026-03-02T14:30:42Z,SPY,0,450,0.15,0.20
2026-03-02T14:31:00Z,SPXW,0,4500,1.35,1.40
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


def users(database: Database, table: str = "public.events") -> list[tuple[Any, ...]]:
    """What of the events is in a table."""
    return database.rows(f"SELECT event_id, user_id, page, payload FROM {table} ORDER BY event_id")


LOADED = [tuple(event.values()) for event in EVENTS]


def fill(kafka: Kafka, topic: str, values: Sequence[bytes] = tuple(json.dumps(one).encode() for one in EVENTS)) -> None:
    """A topic of this name that holds these messages and no others, and a group that has read none of them."""
    from confluent_kafka import KafkaException

    from tests.streams.kafka_topics import admin, new_topic, send

    client = admin(kafka)
    for asked in (client.delete_topics([topic]), client.delete_consumer_groups(["ematix-flow"])):
        for done in asked.values():
            with suppress(KafkaException):  # there was none
                done.result(30)
    new_topic(kafka, name=topic)
    send(kafka, topic, [{"value": value} for value in values])


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
        name="lake", endpoint=url, bucket=BUCKET, region="us-east-1", access_key_id="${AWS_ACCESS_KEY_ID}",
        secret_access_key="${AWS_SECRET_ACCESS_KEY}", format=file_format,
    )  # fmt: skip


def lines_of(client: Any, prefix: str) -> list[str]:
    """The lines of the CSV files below a prefix, sorted."""
    files = [key for key in keys_of(client, prefix) if key.endswith(".csv")]
    texts = [client.get_object(Bucket=BUCKET, Key=key)["Body"].read().decode() for key in files]
    return sorted(line for text in texts for line in text.splitlines())


def keys_of(client: Any, prefix: str) -> list[str]:
    """The objects below a prefix."""
    found = client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", ())
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
