"""What Kafka's clients are told about a connection, and what their words mean; no broker is asked."""

from __future__ import annotations

import base64
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from ematix_flow.backends.catalog import backend_for, batch_refusal
from ematix_flow.backends.kafka.errors import recognise_connector_error
from ematix_flow.backends.kafka.login import KafkaLogin
from ematix_flow.backends.kafka.msk import token
from ematix_flow.backends.kafka.topics import TopicSelection
from ematix_flow.backends.kafka.transactions import TransactionToken
from ematix_flow.declare.connections import KafkaConnection
from ematix_flow.engine.session.jars import read_lock
from ematix_flow.foundation.errors import (
    ConfigError,
    ConnectionFailed,
    DataError,
    FlowError,
    MissingTable,
    PermissionDenied,
    PlanError,
    Unreachable,
)


def access(**fields: Any) -> KafkaLogin:
    return KafkaLogin.of(KafkaConnection("events", **{"bootstrap_servers": "a:9092", **fields}))


def test_a_connection_without_a_login_speaks_plainly() -> None:
    assert access().for_spark() == {"kafka.bootstrap.servers": "a:9092", "kafka.security.protocol": "PLAINTEXT"}
    assert access().for_librdkafka()["security.protocol"] == "PLAINTEXT"


def test_a_plain_login_is_set_in_both_languages() -> None:
    found = access(sasl_plain_username="ana", sasl_plain_password='hunter"22\\')
    assert found.for_spark() == {
        "kafka.bootstrap.servers": "a:9092",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="ana" password="hunter\\"22\\\\";',
    }
    told = found.for_librdkafka()
    assert (told["sasl.mechanism"], told["sasl.username"], told["sasl.password"]) == ("PLAIN", "ana", 'hunter"22\\')
    assert "hunter" not in repr(found)


@pytest.mark.parametrize(("said", "mechanism"), [("sha-256", "SCRAM-SHA-256"), ("sha-512", "SCRAM-SHA-512")])
def test_a_salted_login_has_its_mechanism(said: str, mechanism: str) -> None:
    found = access(sasl_scram_username="ana", sasl_scram_password="hunter22", sasl_scram_mechanism=said)
    assert found.for_spark()["kafka.sasl.mechanism"] == mechanism
    assert "scram.ScramLoginModule" in found.for_spark()["kafka.sasl.jaas.config"]
    assert found.for_librdkafka()["sasl.mechanism"] == mechanism


def test_certificates_travel_as_text(tmp_path: Path) -> None:
    for name, text in {"ca": "CA", "cert": "CERT", "key": "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqG\n"}.items():
        (tmp_path / name).write_text(text)
    paths = {f"tls_{name}_path": str(tmp_path / name) for name in ("ca", "cert", "key")}
    found = access(**paths)
    told = found.for_spark()
    assert told["kafka.security.protocol"] == "SSL"
    assert (told["kafka.ssl.truststore.type"], told["kafka.ssl.truststore.certificates"]) == ("PEM", "CA")
    assert (told["kafka.ssl.keystore.certificate.chain"], told["kafka.ssl.keystore.type"]) == ("CERT", "PEM")
    assert found.for_librdkafka()["ssl.key.pem"] == told["kafka.ssl.keystore.key"]
    assert "MIGH" not in repr(found)
    both = access(**paths, sasl_plain_username="ana", sasl_plain_password="hunter22")
    assert both.protocol == "SASL_SSL"


def test_servers_may_say_that_they_are_encrypted() -> None:
    login = {"sasl_plain_username": "ana", "sasl_plain_password": "hunter22"}
    found = access(bootstrap_servers="SASL_SSL://a:9092, sasl_ssl://b:9092", **login)
    assert (found.servers, found.protocol) == ("a:9092,b:9092", "SASL_SSL")
    with pytest.raises(ConfigError, match="protocol 'https', which Kafka does not have"):
        access(bootstrap_servers="https://a:9092")
    with pytest.raises(ConfigError, match="some are not"):
        access(bootstrap_servers="SSL://a:9092,PLAINTEXT://b:9092")


def test_only_a_login_to_msk_brings_its_jars() -> None:
    plain = KafkaConnection("k", bootstrap_servers="b:9092")
    assert backend_for(plain).jars == ("kafka",)
    wanted = backend_for(replace(plain, msk_iam_region="eu-west-1")).jars
    assert wanted == ("kafka", "s3a", "msk")
    locked = read_lock()
    assert set(wanted) <= locked.keys()
    versions = {jar.version for name in ("s3a", "msk") for jar in locked[name] if jar.group.endswith("awssdk")}
    assert len(versions) == 1, "the login and S3 use one kit"


def test_the_login_of_msk_is_signed_by_the_machines_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-secret-key-of-nobody")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    found = access(bootstrap_servers="b-1.example:9098", msk_iam_region="eu-west-1")
    told = found.for_spark()
    assert told["kafka.security.protocol"] == "SASL_SSL"
    assert told["kafka.sasl.mechanism"] == "AWS_MSK_IAM"
    settings = pickle.loads(pickle.dumps(found.for_librdkafka()))  # tasks elsewhere ask for tokens of their own
    assert settings["sasl.mechanism"] == "OAUTHBEARER"
    made, ends = settings["oauth_cb"]("")
    signed = urlsplit(base64.urlsafe_b64decode(made + "=" * (-len(made) % 4)).decode())
    words = parse_qs(signed.query)
    assert signed.netloc == "kafka.eu-west-1.amazonaws.com"
    assert words["Action"] == ["kafka-cluster:Connect"]
    assert words["X-Amz-Expires"] == ["900"]
    assert words["X-Amz-Credential"][0].endswith("/eu-west-1/kafka-cluster/aws4_request")
    assert {"X-Amz-Signature", "User-Agent"} <= set(words)
    assert ends > 1_700_000_000
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    with pytest.raises(ConnectionFailed, match="no AWS login"):
        token("eu-west-1")


@pytest.mark.parametrize(
    ("query", "names", "pattern"),
    [
        ("orders", ("orders",), None),
        (" orders ,payments, orders", ("orders", "payments"), None),
        ("shop.orders_v2", ("shop.orders_v2",), None),
        ("events-.*", (), "events-.*"),
        ("/orders|payments/", (), "orders|payments"),
        ("/orders/", (), "orders"),
    ],
)
def test_a_query_names_topics_or_a_pattern(query: str, names: tuple[str, ...], pattern: str | None) -> None:
    found = TopicSelection.of(query)
    assert (found.names, found.pattern) == (names, pattern)


def test_a_pattern_means_whole_names() -> None:
    existing = ["events-1", "events-2", "old-events-1", "event"]
    assert TopicSelection.of("events-.*").among(existing) == ["events-1", "events-2"]
    assert TopicSelection.of("event,events-2,other").among(existing) == ["event", "events-2"]


@pytest.mark.parametrize("query", ["", " , ", "two words", "events-(", "/[/"])
def test_what_is_neither_topic_nor_pattern_is_refused(query: str) -> None:
    with pytest.raises(PlanError, match=r"names no topic|cannot be read"):
        TopicSelection.of(query)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed", ConnectionFailed),
        ("x\nCaused by: org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized", PermissionDenied),
        ("[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Some data may have been lost", DataError),
        ("UnknownTopicOrPartitionException: This server does not host this topic-partition.", MissingTable),
        ("org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment", Unreachable),
        (
            "Failed to construct kafka consumer\nCaused by: x.y.ConfigException: No resolvable bootstrap urls",
            Unreachable,
        ),
        ("unable to find LoginModule class: software.amazon.msk.auth.iam.IAMLoginModule", ConfigError),
    ],
)
def test_exceptions_of_the_connector_are_recognised(text: str, kind: type[FlowError]) -> None:
    found = recognise_connector_error(text, at="kafka:a:9092")
    assert type(found) is kind
    assert found.hint


def test_other_exceptions_are_left_to_others() -> None:
    assert recognise_connector_error("[DIVIDE_BY_ZERO] Division by zero") is None


def test_a_token_is_known_again_and_other_words_are_not() -> None:
    made = TransactionToken("copy@1::žluť", 7, "abc", 3)
    assert TransactionToken.read(str(made)) == made
    assert [TransactionToken.read(text) for text in (None, "", "{}", "NO_METADATA", '["x", "y", "z", 1]', "[1]")] == [
        None
    ] * 6


def test_a_batch_pipeline_hears_that_kafka_is_for_streams() -> None:
    backend = backend_for(KafkaConnection("events", bootstrap_servers="a:9092"))
    assert (backend.batch_source, backend.batch_sink, backend.strategies) == (None, None, frozenset())
    for reading, word in ((True, "read"), (False, "written")):
        said = str(batch_refusal(backend, reading=reading))
        assert f"Kafka cannot be {word} by a batch pipeline" in said
        assert "@ematix.streaming_pipeline" in said
