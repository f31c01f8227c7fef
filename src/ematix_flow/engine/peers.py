"""From the peers that a person names to the one address that Spark takes."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from ematix_flow.foundation.errors import ConfigError, ConnectionFailed


def address(peers: Sequence[str]) -> str:
    """A Spark master (several are standby masters of one cluster), or one Spark Connect server.

    >>> address(["spark://a:7077", "spark://b:7077"])
    'spark://a:7077,b:7077'
    """
    kinds = {urlsplit(peer).scheme for peer in peers}
    if kinds <= {"spark", "dns"}:
        return "spark://" + ",".join(place for peer in peers for place in _masters(peer))
    if len(peers) > 1:
        raise ConfigError(
            f"peers= names {len(peers)} places that are not masters of one cluster",
            hint="several peers are standby masters: spark:// or dns:// addresses; name one sc:// or k8s:// address",
        )
    return peers[0]


def _masters(peer: str) -> Iterator[str]:
    parts = urlsplit(peer)
    if parts.scheme == "spark":
        yield parts.netloc
        return
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConnectionFailed(
            f"{peer}: the name {parts.hostname} has no address ({error.strerror})",
            hint="check the name, or use spark://host:port",
        ) from None
    for host in sorted({str(entry[4][0]) for entry in found}):
        yield f"[{host}]:{parts.port}" if ":" in host else f"{host}:{parts.port}"
