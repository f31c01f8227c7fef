"""What the tests of Kafka share: connections by each door of the broker, a session with Kafka's jars, drained streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ematix_flow.backends.kafka.source import KafkaSource
from ematix_flow.contract.stream import StreamRead
from ematix_flow.declare.connections import KafkaConnection
from ematix_flow.engine.session.session import spark_session
from tests.services.kafka import PASSWORD, USER, Kafka


def session(folder: Path, monkeypatch: Any) -> Any:
    """The engine's own session; its log stays out of the person's folders."""
    monkeypatch.setenv("EMATIX_FLOW_LOGS_DIR", str(folder / "logs"))
    return spark_session({"kafka"})


def open_kafka(kafka: Kafka, **fields: Any) -> KafkaConnection:
    """By the door that is open."""
    return KafkaConnection("events", bootstrap_servers=kafka.open, **fields)


def scram(kafka: Kafka, mechanism: str = "sha-256", *, user: str = USER, password: str = PASSWORD) -> KafkaConnection:
    """By a login with a salted password."""
    return KafkaConnection(
        "events", bootstrap_servers=kafka.logins, sasl_scram_username=user, sasl_scram_password=password,
        sasl_scram_mechanism=mechanism,
    )  # fmt: skip


def plain(kafka: Kafka, *, password: str = PASSWORD) -> KafkaConnection:
    """By a login with a plain password."""
    return KafkaConnection(
        "events", bootstrap_servers=kafka.logins, sasl_plain_username=USER, sasl_plain_password=password
    )


def with_certificate(kafka: Kafka) -> KafkaConnection:
    """By a certificate."""
    return KafkaConnection(
        "events", bootstrap_servers=kafka.certificates, tls_ca_path=str(kafka.folder / "ca.pem"),
        tls_cert_path=str(kafka.folder / "client.pem"), tls_key_path=str(kafka.folder / "client.key"),
    )  # fmt: skip


def drained(spark: Any, source: KafkaSource, read: StreamRead) -> list[list[Any]]:
    """The rows of each micro-batch until nothing is left."""
    batches: list[list[Any]] = []
    frame = source.frame(spark, read)
    writer = frame.writeStream.foreachBatch(lambda rows, _: batches.append(rows.collect()))
    writer.option("checkpointLocation", read.checkpoint).trigger(availableNow=True).start().awaitTermination()
    return [rows for rows in batches if rows]
