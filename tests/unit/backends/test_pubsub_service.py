"""What Google's own stand-in for Pub/Sub cannot be made to do: denied and failed requests, by a service in this process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ematix_flow._core import PubSubBackend
from ematix_flow.backends.pubsub.source import PubSubSource
from ematix_flow.contract.stream import StreamRead
from ematix_flow.declare.connections import PubSubConnection

grpc = pytest.importorskip("grpc")
pubsub = pytest.importorskip("google.pubsub_v1")
empty_pb2 = pytest.importorskip("google.protobuf.empty_pb2")
PULL_SECONDS = 0.2


@dataclass
class Service:
    """A subscriber's service with one message, whose acknowledgement deadline is three seconds."""

    denies_settings: bool = False
    failing_extensions: int = 0
    extensions: int = 0
    _waiting: list[bytes] = field(default_factory=lambda: [b'{"n": 1}'])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Service:
        self._server: Any = grpc.server(futures.ThreadPoolExecutor(4))
        answers: dict[str, tuple[Any, Callable[..., Any]]] = {
            "GetSubscription": (pubsub.GetSubscriptionRequest, self._settings),
            "Pull": (pubsub.PullRequest, self._pull),
            "ModifyAckDeadline": (pubsub.ModifyAckDeadlineRequest, self._extend),
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                answer, request_deserializer=kind.deserialize,
                response_serializer=lambda made: made.SerializeToString(),
            )
            for name, (kind, answer) in answers.items()
        }  # fmt: skip
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("google.pubsub.v1.Subscriber", handlers),)
        )
        self.endpoint = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()

    def _settings(self, asked: Any, context: Any) -> Any:
        if self.denies_settings:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "no pubsub.subscriptions.get")
        return pubsub.Subscription.pb(pubsub.Subscription(name=asked.subscription, ack_deadline_seconds=3))

    def _pull(self, asked: Any, context: Any) -> Any:
        with self._lock:
            found, self._waiting = self._waiting, []
        if not found:
            time.sleep(PULL_SECONDS)
        received = [{"ack_id": "a1", "message": {"data": data, "message_id": "m1"}} for data in found]
        return pubsub.PullResponse.pb(pubsub.PullResponse(received_messages=received))

    def _extend(self, asked: Any, context: Any) -> Any:
        with self._lock:
            self.extensions += 1
            fails = self.extensions <= self.failing_extensions
        if fails:
            context.abort(grpc.StatusCode.INTERNAL, "not now")
        return empty_pb2.Empty()


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as started:
        yield started


def test_a_notebook_goes_on_to_extend_deadlines_after_a_failure(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    service.failing_extensions = 2
    with (
        caplog.at_level(logging.WARNING, "ematix_flow"),
        PubSubBackend.open("p", endpoint=service.endpoint, anonymous_auth=True, idle_timeout_ms=200) as backend,
    ):
        assert len(backend.read_arrow_stream("orders")) == 1
        until = time.monotonic() + 30
        while service.extensions < 4 and time.monotonic() < until:
            time.sleep(0.05)
        assert service.extensions >= 4
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("the deadlines of 1 message(s) cannot be extended, they may be delivered again: Pub/Sub at")


def test_a_login_that_may_not_see_the_dead_letter_policy_is_warned(
    service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service.denies_settings = True
    source = PubSubSource(PubSubConnection("b", project_id="p", endpoint=service.endpoint, anonymous_auth=True))
    with caplog.at_level(logging.WARNING, "ematix_flow"):
        source.check_dead_lettering(StreamRead("s", "orders", str(tmp_path)))
    (said,) = [record.getMessage() for record in caplog.records]
    assert "whether subscription 'orders' has a dead-letter topic" in said
    assert "roles/pubsub.viewer" in said
