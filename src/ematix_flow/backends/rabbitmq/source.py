"""A queue of RabbitMQ as stream source."""

from __future__ import annotations

from functools import partial

from ematix_flow.backends.rabbitmq.client import RabbitMQAddress, queue_depth
from ematix_flow.backends.rabbitmq.dead_letters import check_dead_lettering
from ematix_flow.backends.rabbitmq.receiver import RabbitMQReceiver
from ematix_flow.contract.stream import StreamRead
from ematix_flow.declare.connections import RabbitMQConnection
from ematix_flow.spool.receiver import MakeReceiver
from ematix_flow.spool.source import SpoolSource


class RabbitMQSource(SpoolSource):
    """The queues of one connection; a stream's query is the name of one."""

    connection: RabbitMQConnection

    def receiver(self, read: StreamRead) -> MakeReceiver:
        return partial(RabbitMQReceiver, self._address(read), read.query, self.connection.resolved().consumer_tag)

    def check(self, read: StreamRead) -> None:
        self.refuse_unsupported(read)
        queue_depth(self._address(read), read.query)

    def check_dead_lettering(self, read: StreamRead) -> None:
        check_dead_lettering(self._address(read), read.query)

    def waiting(self, read: StreamRead) -> int | None:
        return queue_depth(self._address(read), read.query)

    def _address(self, read: StreamRead) -> RabbitMQAddress:
        return RabbitMQAddress.of(self.connection, read.stream)
