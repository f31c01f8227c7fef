"""The streams that this process has declared, by name."""

from __future__ import annotations

from typing import Protocol

from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.foundation.errors import DeclarationError, UnknownName
from ematix_flow.foundation.location import DeclaredPlaces
from ematix_flow.foundation.names import did_you_mean


class DeclaredStream(Protocol):
    """A decorated function, or another object with a stream declaration."""

    @property
    def spec(self) -> StreamSpec:
        """Return the declaration."""


_streams: dict[str, DeclaredStream] = {}
_places = DeclaredPlaces()


def register(stream: DeclaredStream) -> None:
    """Register a stream; raise for a name declared at another line, unless its file was edited in between."""
    spec = stream.spec
    other = _places.declare(spec.name, spec.where)
    if other is not None:
        raise DeclarationError(
            f"a stream {spec.name!r} is already declared at {other}",
            where=spec.where,
            hint="pass another name=",
        )
    _streams[spec.name] = stream


def streams() -> dict[str, DeclaredStream]:
    """Return all streams by name, in order of declaration."""
    return dict(_streams)


def find(name: str) -> StreamSpec | None:
    """Return the stream of that name, or None."""
    stream = _streams.get(name)
    return stream.spec if stream is not None else None


def get(name: str) -> StreamSpec:
    """Return the stream of that name; raise an UnknownName (a KeyError) with the nearest name if there is none."""
    stream = find(name)
    if stream is None:
        raise UnknownName(f"no stream is called {name!r}", hint=did_you_mean(name, _streams))
    return stream


def clear() -> None:
    """Remove all streams; for tests."""
    _streams.clear()
    _places.clear()
