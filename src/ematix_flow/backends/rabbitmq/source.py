"""A queue of RabbitMQ as stream source."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ematix_flow.backends.rabbitmq.client import Address, depth
from ematix_flow.backends.rabbitmq.dead_letters import check_rejected_are_kept
from ematix_flow.backends.rabbitmq.receiver import RabbitMQReceiver
from ematix_flow.contract.stream import StreamRead
from ematix_flow.families.spool.receiver import MakeReceiver
from ematix_flow.families.spool.source import SpoolSource

if TYPE_CHECKING:
    from ematix_flow.declare.connections import RabbitMQConnection


class RabbitMQSource(SpoolSource):
    """The queues of one connection; a stream's query is the name of one."""

    connection: RabbitMQConnection

    def receiver(self, read: StreamRead) -> MakeReceiver:
        return partial(RabbitMQReceiver, self._address(read), read.query, self.connection.resolved().consumer_tag)

    def check(self, read: StreamRead) -> None:
        self.refuse_odd(read)
        depth(self._address(read), read.query)

    def check_refused_are_kept(self, read: StreamRead) -> None:
        check_rejected_are_kept(self._address(read), read.query)

    def waiting(self, read: StreamRead) -> int | None:
        return depth(self._address(read), read.query)

    def _address(self, read: StreamRead) -> Address:
        return Address.of(self.connection, read.stream)
