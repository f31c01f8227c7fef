"""A subscription of Pub/Sub as stream source."""

from __future__ import annotations

import logging
from functools import partial

from ematix_flow.backends.pubsub.client import PubSubAddress, get_subscription, no_dead_letter_policy
from ematix_flow.backends.pubsub.monitoring import undelivered
from ematix_flow.backends.pubsub.receiver import PubSubReceiver
from ematix_flow.contract.stream import StreamRead
from ematix_flow.declare.connections import PubSubConnection
from ematix_flow.foundation.errors import PermissionDenied
from ematix_flow.spool.receiver import MakeReceiver
from ematix_flow.spool.source import SpoolSource

_log = logging.getLogger(__name__)


class PubSubSource(SpoolSource):
    """The subscriptions of one project; a stream's query is the name of one."""

    connection: PubSubConnection

    def receiver(self, read: StreamRead) -> MakeReceiver:
        return partial(PubSubReceiver, PubSubAddress.of(self.connection), read.query)

    def check(self, read: StreamRead) -> None:
        self.refuse_unsupported(read)
        try:
            get_subscription(PubSubAddress.of(self.connection), read.query)
        except PermissionDenied:  # a read-only login cannot query; a missing subscription fails at the first pull
            return

    def check_dead_lettering(self, read: StreamRead) -> None:
        """Raise ConfigError for a subscription without a dead-letter topic; warn where the login may not query it."""
        try:
            subscription = get_subscription(PubSubAddress.of(self.connection), read.query)
        except PermissionDenied:
            _log.warning(
                "this login may not see whether subscription %r has a dead-letter topic; without one, rejected messages "
                "are delivered again and again: grant it roles/pubsub.viewer, or look yourself: gcloud pubsub "
                "subscriptions describe %s",
                read.query, read.query,
            )  # fmt: skip
            return
        if not subscription.dead_letter_policy.dead_letter_topic:
            raise no_dead_letter_policy(read.query)

    def waiting(self, read: StreamRead) -> int | None:
        return undelivered(PubSubAddress.of(self.connection), read.query)
