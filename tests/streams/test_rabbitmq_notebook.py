"""RabbitMQ by hand, as a notebook uses it, against a real broker."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ematix_flow._core import RabbitMQBackend
from ematix_flow.foundation.errors import BadValue, ConnectionFailed, DeclarationError, MissingTable
from tests.services import rabbitmq
from tests.services.server import free_port
from tests.streams.rabbit_queues import depth, new_queue, publish, taken, with_dead_letters


def opened(url: str, **more: int) -> RabbitMQBackend:
    return RabbitMQBackend.open(url, **{"idle_timeout_ms": 500, **more})  # type: ignore[arg-type]


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(numbers), "text": [f"žluť {n}" for n in numbers]})


def test_batches_go_out_and_come_back_and_are_acknowledged(rabbitmq_url: str) -> None:
    queue = new_queue(rabbitmq_url)
    with opened(rabbitmq_url, batch_size=4) as backend:
        assert backend.ping() is True
        assert backend.write_arrow_stream(queue, [batch(1, 2, 3), batch(4, 5)]) == 5
        read = backend.read_arrow_stream(queue)
        assert [len(one) for one in read] == [4, 1]
        assert pa.Table.from_batches(read).to_pylist() == pa.Table.from_batches([batch(1, 2, 3, 4, 5)]).to_pylist()
        assert backend.pending_delivery_count() == 5
        backend.commit_offsets()
        assert backend.pending_delivery_count() == 0
    assert depth(rabbitmq_url, queue) == 0


def test_what_was_not_committed_comes_again(rabbitmq_url: str) -> None:
    queue = new_queue(rabbitmq_url)
    with opened(rabbitmq_url) as backend:
        backend.write_arrow_stream(queue, [batch(1, 2)])
        assert len(backend.read_arrow_stream(queue)[0]) == 2
    with opened(rabbitmq_url) as backend:
        for one in backend.iter_arrow_stream(queue):
            assert one.column("n").to_pylist() == [1, 2]
            assert backend.nack_pending(requeue=True) == 2
            break
        assert backend.read_arrow_stream(queue)[0].num_rows == 2
        backend.commit_offsets()
    assert depth(rabbitmq_url, queue) == 0


def test_rejected_messages_go_to_the_dead_letter_exchange(rabbitmq_url: str) -> None:
    queue, dead = with_dead_letters(rabbitmq_url)
    with opened(rabbitmq_url) as backend:
        backend.write_arrow_stream(queue, [batch(1, 2)])
        backend.read_arrow_stream(queue)
        assert backend.nack_pending(False) == 2
    found = taken(rabbitmq_url, dead, at_least=2)
    assert [properties.headers["x-death"][0]["queue"] for properties, _ in found] == [queue, queue]


def test_a_message_that_is_not_json_can_be_rejected(rabbitmq_url: str) -> None:
    queue, dead = with_dead_letters(rabbitmq_url)
    publish(rabbitmq_url, queue, ["not json"])
    with opened(rabbitmq_url) as backend:
        with pytest.raises(BadValue, match="id not json is not JSON"):
            backend.read_arrow_stream(queue)
        assert backend.nack_pending(requeue=False) == 1
    assert len(taken(rabbitmq_url, dead, at_least=1)) == 1


def test_what_could_not_be_decoded_is_never_acknowledged(rabbitmq_url: str) -> None:
    queue = new_queue(rabbitmq_url)
    publish(rabbitmq_url, queue, ['{"n": 1}', "not json"])
    with opened(rabbitmq_url, batch_size=1) as backend:
        with pytest.raises(BadValue, match="is not JSON"):
            backend.read_arrow_stream(queue)
        assert backend.pending_delivery_count() == 2
        backend.commit_offsets()
        assert backend.pending_delivery_count() == 1
    assert [body for _, body in taken(rabbitmq_url, queue, at_least=1)] == [b"not json"]


def test_another_queue_is_read_only_when_nothing_waits_for_an_answer(rabbitmq_url: str) -> None:
    first, second = new_queue(rabbitmq_url), new_queue(rabbitmq_url)
    with opened(rabbitmq_url) as backend:
        backend.write_arrow_stream(first, [batch(1)])
        backend.read_arrow_stream(first)
        with pytest.raises(DeclarationError, match="wait for an answer"):
            backend.read_arrow_stream(second)
        backend.commit_offsets()
        assert backend.read_arrow_stream(second) == []


def test_mistakes_are_reported_in_sentences_without_secrets(rabbitmq_url: str) -> None:
    with pytest.raises(ConnectionFailed, match="no server answers"):
        opened(f"amqp://a:hunter22@127.0.0.1:{free_port()}/%2F").ping()
    with pytest.raises(ValueError, match="refuses the login") as told:
        opened(rabbitmq_url.replace(rabbitmq.PASSWORD, "hunter22")).ping()
    assert "hunter22" not in str(told.value)
    backend = opened(rabbitmq_url)
    assert rabbitmq.PASSWORD not in repr(backend)
    for work in (backend.read_arrow_stream, lambda queue: backend.write_arrow_stream(queue, [batch(1)])):
        with pytest.raises(MissingTable, match="'nowhere' is not there"):
            work("nowhere")
    with pytest.raises(DeclarationError, match="batch_size takes a positive"):
        RabbitMQBackend.open(rabbitmq_url, batch_size=0)
