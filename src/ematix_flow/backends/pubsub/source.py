"""A subscription of Pub/Sub as stream source."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from ematix_flow.backends.pubsub.client import Address, ask_subscription, keeps_nothing
from ematix_flow.backends.pubsub.monitoring import undelivered
from ematix_flow.backends.pubsub.receiver import PubSubReceiver
from ematix_flow.contract.stream import StreamRead
from ematix_flow.families.spool.receiver import MakeReceiver
from ematix_flow.families.spool.source import SpoolSource
from ematix_flow.foundation.errors import PermissionDenied

if TYPE_CHECKING:
    from ematix_flow.declare.connections import PubSubConnection

_log = logging.getLogger(__name__)


class PubSubSource(SpoolSource):
    """The subscriptions of one project; a stream's query is the name of one."""

    connection: PubSubConnection

    def receiver(self, read: StreamRead) -> MakeReceiver:
        return partial(PubSubReceiver, Address.of(self.connection), read.query)

    def check(self, read: StreamRead) -> None:
        self.refuse_odd(read)
        try:
            ask_subscription(Address.of(self.connection), read.query)
        except PermissionDenied:  # a read-only login cannot query; a missing subscription fails at the first pull
            return

    def check_refused_are_kept(self, read: StreamRead) -> None:
        """Raise ConfigError for a subscription without a dead-letter topic; warn where the login may not query it."""
        try:
            found = ask_subscription(Address.of(self.connection), read.query)
        except PermissionDenied:
            _log.warning(
                "this login may not see whether subscription %r has a dead-letter topic; without one, rejected messages "
                "are delivered again and again: grant it roles/pubsub.viewer, or look yourself: gcloud pubsub "
                "subscriptions describe %s",
                read.query, read.query,
            )  # fmt: skip
            return
        if not found.dead_letter_policy.dead_letter_topic:
            raise keeps_nothing(read.query)

    def waiting(self, read: StreamRead) -> int | None:
        return undelivered(Address.of(self.connection), read.query)
