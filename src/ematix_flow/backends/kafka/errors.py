"""Kafka's errors as FlowErrors: those of librdkafka by name, those of Spark's connector by message text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ematix_flow.foundation.errors import (
    BadValue,
    ConfigError,
    ConnectionFailed,
    DataError,
    FlowError,
    LeaseLost,
    MissingTable,
    PermissionDenied,
    PlanError,
    RunFailed,
    StorageFull,
    Unreachable,
)
from ematix_flow.foundation.names import nearest_name
from ematix_flow.foundation.redact import mask

_UP = "is the broker running, and are host and port right? flow connections check NAME"
_LOGIN = "check user, password and mechanism of the connection, and that its listener is the one with a login"
_TLS = "check tls_ca_path, tls_cert_path and tls_key_path, and that the port is one that speaks TLS"
_RIGHTS = "grant the right to this login with kafka-acls, or use another one"
_AGAIN = "run it again: nothing is lost"
_FENCED = "one runner of a stream is enough: stop the other one; the last one to start goes on"

_BY_NAME: dict[str, tuple[type[FlowError], str, str]] = {
    "_TRANSPORT": (Unreachable, "no server answers at {at}", _UP),
    "_ALL_BROKERS_DOWN": (Unreachable, "no server answers at {at}", _UP),
    "_RESOLVE": (Unreachable, "the host of {at} is not known to this network", _UP),
    "_TIMED_OUT": (Unreachable, "{at} did not answer in time", _UP),
    "_TIMED_OUT_QUEUE": (Unreachable, "{at} did not answer in time", _UP),
    "_MSG_TIMED_OUT": (Unreachable, "{at} did not take the messages in time", _UP),
    "REQUEST_TIMED_OUT": (Unreachable, "{at} did not answer in time", _UP),
    "LEADER_NOT_AVAILABLE": (Unreachable, "{at} has no leader for the topic at the moment", _AGAIN),
    "COORDINATOR_NOT_AVAILABLE": (Unreachable, "{at} has no coordinator for the group at the moment", _AGAIN),
    "COORDINATOR_LOAD_IN_PROGRESS": (Unreachable, "{at} has no coordinator for the group at the moment", _AGAIN),
    "NOT_ENOUGH_REPLICAS": (Unreachable, "{at} has too few replicas of the topic at the moment", _AGAIN),
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": (Unreachable, "{at} has too few replicas of the topic", _AGAIN),
    "_AUTHENTICATION": (ConnectionFailed, "{at} refuses the login", _LOGIN),
    "SASL_AUTHENTICATION_FAILED": (ConnectionFailed, "{at} refuses the login", _LOGIN),
    "UNSUPPORTED_SASL_MECHANISM": (ConnectionFailed, "{at} does not offer this way to log in", _LOGIN),
    "ILLEGAL_SASL_STATE": (ConnectionFailed, "{at} refuses the login", _LOGIN),
    "_SSL": (ConnectionFailed, "{at} and this connection do not agree about TLS", _TLS),
    "TOPIC_AUTHORIZATION_FAILED": (PermissionDenied, "this login may not use the topic at {at}", _RIGHTS),
    "GROUP_AUTHORIZATION_FAILED": (PermissionDenied, "this login may not use the consumer group at {at}", _RIGHTS),
    "CLUSTER_AUTHORIZATION_FAILED": (PermissionDenied, "this login may not do that at {at}", _RIGHTS),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (
        PermissionDenied, "this login may not use transactions at {at}",
        "grant it Write and Describe on the transactional id, which begins with the stream's name",
    ),
    "UNKNOWN_TOPIC_OR_PART": (MissingTable, "the topic is not there at {at}", "check its name, or create it"),
    "_UNKNOWN_TOPIC": (MissingTable, "the topic is not there at {at}", "check its name, or create it"),
    "_UNKNOWN_PARTITION": (MissingTable, "the partition is not there at {at}", "has the topic been made anew?"),
    "TOPIC_EXCEPTION": (PlanError, "this is no name of a topic", "letters, digits, dot, underscore and dash make one"),
    "MSG_SIZE_TOO_LARGE": (
        BadValue, "a message is larger than {at} takes",
        "make it smaller, or raise max.message.bytes of the topic",
    ),
    "INVALID_RECORD": (BadValue, "{at} refuses a message", "a compacted topic takes no message without a key"),
    "KAFKA_STORAGE_ERROR": (StorageFull, "{at} cannot store messages", "look at the disks of the broker"),
    "OFFSET_OUT_OF_RANGE": (DataError, "{at} no longer keeps the messages at these offsets", "rewind the stream"),
    "_FENCED": (LeaseLost, "another producer of this stream has taken over at {at}", _FENCED),
    "PRODUCER_FENCED": (LeaseLost, "another producer of this stream has taken over at {at}", _FENCED),
    "INVALID_PRODUCER_EPOCH": (LeaseLost, "another producer of this stream has taken over at {at}", _FENCED),
    "INVALID_PRODUCER_ID_MAPPING": (LeaseLost, "{at} has forgotten the producer of this stream", _AGAIN),
    "INVALID_TRANSACTION_TIMEOUT": (
        ConnectionFailed, "{at} allows only shorter transactions",
        "raise transaction.max.timeout.ms of the brokers to at least 600000",
    ),
    "_INVALID_ARG": (ConfigError, "a setting of the Kafka client is wrong", "see the sentence above"),
}  # fmt: skip

_BY_TEXT: tuple[tuple[str, type[FlowError], str, str], ...] = (
    (r"SaslAuthenticationException", ConnectionFailed, "{at} refuses the login", _LOGIN),
    (r"IAMLoginModule|IAMClientCallbackHandler", ConfigError, "Spark has no login for Amazon MSK",
     "give a session of your own the jar aws-msk-iam-auth-2.3.0-all.jar in spark.jars; see docs/backends/kafka.md"),
    (r"Ssl(?:Authentication|Handshake)?Exception|SSLHandshakeException|Failed to load PEM", ConnectionFailed,
     "{at} and this connection do not agree about TLS", _TLS),
    (r"(?:Topic|Group|Cluster|TransactionalId)AuthorizationException", PermissionDenied,
     "this login may not do that at {at}", _RIGHTS),
    (r"KAFKA_DATA_LOSS|some data may have been missed|some data may have been lost|OffsetOutOfRangeException", DataError,
     "{at} no longer keeps messages that this stream has not read",
     "see what is lost, then go on where the topic begins: flow stream rewind NAME --to earliest"),
    (r"UnknownTopicOrPartitionException|does not host this topic-partition", MissingTable,
     "a topic of this stream is not there at {at}", "check its name, or create it"),
    (r"RecordTooLargeException", BadValue, "a message is larger than {at} takes",
     "make it smaller, or raise max.message.bytes of the topic"),
    (r"No resolvable bootstrap urls", Unreachable, "the host of {at} is not known to this network", _UP),
    (r"TimeoutException: (?:Timeout|Timed out|Topic|Failed to|Call)|Failed to (?:create|construct) (?:new )?kafka",
     Unreachable, "{at} does not answer", _UP),
    (r"DisconnectException|Failed to get (?:records|offset)|NotEnoughReplicas|Node -?\d+ disconnected", Unreachable,
     "{at} does not answer", _UP),
)  # fmt: skip


def translate(exc: BaseException, *, at: str = "Kafka") -> FlowError:
    """Return the FlowError for an exception of confluent-kafka; `at` is the cluster's name in the message."""
    if isinstance(exc, FlowError):
        return exc
    error = error_of(exc)
    if error is None:
        return recognise_connector_error(str(exc), at=at) or RunFailed(
            f"{at}: {mask(str(exc))}", hint="see the broker's log"
        )
    message = mask(str(error.str()))
    known = _BY_NAME.get(str(error.name()))
    if known is None:
        return RunFailed(f"{at} answered {error.name()}: {message}", hint="see the broker's log")
    kind, what, hint = known
    return kind(f"{what.format(at=at)}: {message}", hint=hint)


def error_of(exc: BaseException) -> Any:
    """Return the KafkaError inside an exception of confluent-kafka; None for another exception."""
    first = exc.args[0] if exc.args else None
    return first if hasattr(first, "name") and hasattr(first, "retriable") else None


def recognise_connector_error(text: str, *, at: str = "Kafka") -> FlowError | None:
    """Return the FlowError for an exception text of Spark's connector; None when it is not about Kafka."""
    for pattern, kind, what, hint in _BY_TEXT:
        match = re.search(pattern, text)
        if match is not None:
            return kind(f"{what.format(at=at)}: {_sentence(text, match.start())}", hint=hint)
    return None


def missing_topic(name: str, existing: Iterable[str], *, at: str) -> MissingTable:
    """Return the error for a missing topic, with the most similar existing name."""
    near = nearest_name(name, existing)
    hint = f"did you mean {near!r}? " if near else ""
    return MissingTable(
        f"topic {name!r} is not there at {at}",
        hint=f"{hint}Kafka's own tool makes one: kafka-topics --create --topic {name}",
        topic=name,
    )


def _sentence(text: str, place: int) -> str:
    """Return the line of a match, masked and without package names, at most 300 characters."""
    begin = text.rfind("\n", 0, place) + 1
    end = text.find("\n", place)
    line = re.sub(r"^\s*(?:Caused by:|at)\s*|\b(?:[a-z]\w*\.)+(?=[A-Z])", "", text[begin : end if end >= 0 else None])
    return mask(line.strip())[:300]
