"""Which engine a pipeline asks for, and the clusters it names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.foundation.names import did_you_mean

AUTO, LOCAL, DISTRIBUTED, SAIL = "auto", "local", "distributed", "sail"
ENGINES = (AUTO, LOCAL, DISTRIBUTED, SAIL)
SCHEMES = ("spark", "sc", "dns", "k8s")
_PORTS_NEEDED = ("spark", "dns")


@dataclass(frozen=True)
class EngineWish:
    """What somebody said about the engine; None and () where they said nothing.

    >>> wish("distributed", ["spark://head:7077"])
    EngineWish(engine='distributed', peers=('spark://head:7077',))
    """

    engine: str | None = None
    peers: tuple[str, ...] = ()


def wish(engine: object, peers: str | Sequence[str] | None) -> EngineWish:
    """Check the keywords `engine=` and `peers=`, wherever they were written."""
    if engine is not None and engine not in ENGINES:
        raise DeclarationError(f"engine={engine!r} is not known", hint=did_you_mean(str(engine), ENGINES))
    listed = (peers,) if isinstance(peers, str) else tuple(peers or ())
    for peer in listed:
        _check(peer)
    if engine in (LOCAL, SAIL) and listed:
        raise DeclarationError(f'engine="{engine}" runs in this process and has no peers', hint="leave out peers=")
    return EngineWish(str(engine) if engine is not None else None, listed)


def _check(peer: object) -> None:
    parts = urlsplit(peer) if isinstance(peer, str) else None
    if parts is None or parts.scheme not in SCHEMES:
        raise DeclarationError(
            f"peers= does not take {peer!r}",
            hint='a cluster is "spark://host:7077", "sc://host:15002", "dns://host:7077" or "k8s://https://host:6443"',
        )
    if parts.scheme in _PORTS_NEEDED and ":" not in parts.netloc:
        raise DeclarationError(f"{peer} has no port", hint=f"for example {parts.scheme}://{parts.netloc}:7077")
