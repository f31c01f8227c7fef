"""The engine that a pipeline selects, and the addresses of its clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from ematix_flow.foundation.errors import DeclarationError, check_choice

AUTO, LOCAL, DISTRIBUTED, SAIL = "auto", "local", "distributed", "sail"
ENGINES = (AUTO, LOCAL, DISTRIBUTED, SAIL)
SCHEMES = ("spark", "sc", "dns", "k8s")
_PORTS_NEEDED = ("spark", "dns")


@dataclass(frozen=True)
class EngineOptions:
    """The keywords `engine=` and `peers=`; None and () where they are not given.

    >>> engine_options("distributed", ["spark://head:7077"])
    EngineOptions(engine='distributed', peers=('spark://head:7077',))
    """

    engine: str | None = None
    peers: tuple[str, ...] = ()


def engine_options(engine: object, peers: object) -> EngineOptions:
    """Check the keywords `engine=` and `peers=` of any declaration or configuration, and return them as one value."""
    if engine is not None:
        check_choice("engine", engine, ENGINES)
    listed = _peer_list(peers)
    for peer in listed:
        check_peer(peer)
    if engine in (LOCAL, SAIL) and listed:
        raise DeclarationError(f'engine="{engine}" runs in this process and has no peers', hint="leave out peers=")
    return EngineOptions(str(engine) if engine is not None else None, listed)


def check_peer(peer: object) -> None:
    """Raise DeclarationError unless `peer` is the address of a cluster; a `${…}` in it is not resolved here."""
    try:
        parts = urlsplit(peer) if isinstance(peer, str) else None
    except ValueError:  # brackets that do not close
        parts = None
    if instead := _suggested_master(parts):
        raise DeclarationError(f"{peer!r} is no address of a Spark cluster", hint=f'write "{instead}" instead')
    if parts is None or parts.scheme not in SCHEMES or not (parts.netloc or parts.path):
        raise DeclarationError(
            f"{peer!r} is no address of a cluster",
            hint='a cluster is "spark://host:7077", "sc://host:15002", "dns://host:7077" or "k8s://https://host:6443"',
        )
    if "${" not in str(peer) and parts.scheme in _PORTS_NEEDED and ":" not in parts.netloc.rpartition("]")[2]:
        raise DeclarationError(f"{peer} has no port", hint=f"for example {parts.scheme}://{parts.netloc}:7077")


def _suggested_master(parts: SplitResult | None) -> str | None:
    """Return the address of a Spark master to suggest for an HTTP address or a Kubernetes service, else None."""
    if parts is None or not parts.hostname:
        return None
    if parts.scheme in ("http", "https"):
        return f"spark://{parts.hostname}:7077"
    service, dot, namespace = parts.netloc.partition(":")[0].partition(".")
    if parts.scheme == "k8s" and dot and "." not in namespace and ":" in parts.netloc and "${" not in parts.netloc:
        return f"dns://{service}.{namespace}.svc.cluster.local:{parts.netloc.rpartition(':')[2]}"
    return None


def _peer_list(peers: object) -> tuple[str, ...]:
    if isinstance(peers, str):
        return (peers,)
    if peers is not None and not isinstance(peers, Sequence):
        raise DeclarationError("peers= is not a list of addresses", hint='write peers=["spark://host:7077"]')
    return tuple(peers or ())
