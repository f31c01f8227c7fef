"""Conversion of the user's peers to the one address that Spark takes, and the test whether it is reachable."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator, Sequence
from functools import lru_cache
from urllib.parse import urlsplit

from ematix_flow.declare.engine import check_peer
from ematix_flow.foundation import redact
from ematix_flow.foundation.errors import ConfigError, ConnectionFailed, FlowError, Unreachable
from ematix_flow.foundation.secrets import expand

CONNECT_PORT = 15002
_KNOCK_SECONDS = 5.0
_NEXT = {
    "spark": "check that the master runs there and that this machine may reach it (flow cluster start tries one here)",
    "sc": "check that the Spark Connect server runs there and that this machine may reach it",
    "k8s": "check the API server's address: kubectl cluster-info",
}


def engine_address(peers: Sequence[str]) -> str:
    """Return the address of a Spark master (several are standby masters of one cluster) or of one Spark Connect server.

    >>> engine_address(["spark://a:7077", "spark://b:7077"])
    'spark://a:7077,b:7077'
    """
    named = [filled_address(peer) for peer in peers]
    kinds = {urlsplit(peer).scheme for peer in named}
    if kinds <= {"spark", "dns"}:
        return "spark://" + ",".join(place for peer in named for place in _masters(peer))
    if len(named) > 1:
        raise ConfigError(
            f"peers= names {len(named)} places that are not masters of one cluster",
            hint="several peers are standby masters: spark:// or dns:// addresses; name one sc:// or k8s:// address",
        )
    return named[0]


def filled_address(peer: str) -> str:
    """Return the address with its references resolved; a token inside it is registered as a secret."""
    expanded = expand(peer, secret=False)
    redact.remember_url_secrets(expanded)
    try:
        check_peer(expanded.partition(",")[0])
    except FlowError as error:
        raise ConfigError(error.what, hint=error.hint) from None
    return expanded


def shown_address(where: str) -> str:
    """Return an address for display, without the parameters of a Spark Connect address, which may be secrets.

    >>> shown_address("sc://head:15002/;use_ssl=true;token=abc")
    'sc://head:15002'
    """
    return redact.mask(re.sub(r"(?<=[^/:])/?;.*", "", where) if where.startswith("sc://") else where)


def require_reachable(where: str) -> None:
    """Try each host and port of an address; raise Unreachable if none answers, after seconds instead of minutes."""
    doors = list(hosts_and_ports(where))
    failures: list[str] = []
    for host, port in doors:
        try:
            socket.create_connection((host, port), timeout=_KNOCK_SECONDS).close()
        except OSError as error:
            failures.append(error.strerror or str(error) or type(error).__name__)
        else:
            return
    if doors:
        reason = ", ".join(dict.fromkeys(text.lower() for text in failures))
        raise Unreachable(
            f"the cluster at {shown_address(where)} does not answer: {reason}", hint=_NEXT[where.partition(":")[0]]
        )


def hosts_and_ports(where: str) -> Iterator[tuple[str, int]]:
    """Yield the hosts and ports of an address; none for one that Spark resolves by other means.

    >>> list(hosts_and_ports("spark://a:7077,b:7078")), list(hosts_and_ports("sc://c/;use_ssl=true"))
    ([('a', 7077), ('b', 7078)], [('c', 15002)])
    """
    scheme, _, rest = where.partition("://")
    if scheme == "spark":
        for place in rest.split(","):
            yield _host_and_port(f"spark://{place}", 7077)
    elif scheme == "sc":
        yield _host_and_port(f"sc://{re.split('[/;]', rest, maxsplit=1)[0]}", CONNECT_PORT)
    elif scheme == "k8s":
        server = rest if "://" in rest else f"https://{rest}"
        yield _host_and_port(server, 80 if server.startswith("http://") else 443)


def own_address(where: str) -> str | None:
    """Return the address by which the machines behind `where` can reach this one; None when it is unknown."""
    for host, port in hosts_and_ports(where):
        with contextlib.suppress(OSError):
            family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as probe:
                probe.connect(place)  # a datagram socket only chooses a route and sends nothing
                return str(probe.getsockname()[0])
    return None


def _host_and_port(place: str, default: int) -> tuple[str, int]:
    try:
        parts = urlsplit(place)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host:
        raise ConfigError(
            f"{shown_address(place)} names no host", hint="write it like spark://host:7077 or sc://host:15002"
        )
    return host, port or default


def _masters(peer: str) -> Iterator[str]:
    parts = urlsplit(peer)
    if parts.scheme == "spark":
        yield parts.netloc
        return
    for host in _addresses(str(parts.hostname), parts.port or 7077):
        yield f"[{host}]:{parts.port}" if ":" in host else f"{host}:{parts.port}"


@lru_cache(maxsize=8)
def _addresses(host: str, port: int) -> tuple[str, ...]:
    """Resolve a name once: the process keeps using the same cluster even if the name's addresses change later."""
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConnectionFailed(
            f"dns://{host}:{port}: the name {host} has no address ({error.strerror})",
            hint="check the name, or use spark://host:port",
        ) from None
    return tuple(sorted({str(entry[4][0]) for entry in infos}))
