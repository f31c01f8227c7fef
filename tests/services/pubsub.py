"""Google Pub/Sub as pstest, the stand-in that Google's own client is tested with."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.services.built import PSTEST, product
from tests.services.server import Account, Server, end, free_port, launch, wait_until_ready

PROJECT = "flow-tests"
_OURSELVES = Account(uid=None, gid=None)


def start(folder: Path) -> Server:
    """A Pub/Sub that keeps everything in memory."""
    program, port = product(PSTEST), free_port()
    process = launch([str(program), "-port", str(port)], account=_OURSELVES, folder=folder, death_signal=signal.SIGTERM)
    endpoint = f"127.0.0.1:{port}"
    wait_until_ready(process, connect=lambda: _ask(endpoint), folder=folder)
    return Server(url=endpoint, stop=lambda: end(process, by=signal.SIGTERM))


def _ask(endpoint: str) -> None:
    import grpc
    from google.pubsub_v1 import PublisherClient
    from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport

    with PublisherClient(transport=PublisherGrpcTransport(channel=grpc.insecure_channel(endpoint))) as client:
        list(client.list_topics(project=f"projects/{PROJECT}", timeout=2, retry=None))
