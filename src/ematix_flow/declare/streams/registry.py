"""The streams that this process has declared, by name."""

from __future__ import annotations

from typing import Protocol

from ematix_flow.declare.declared_names import DeclaredNames
from ematix_flow.declare.streams.spec import StreamSpec


class DeclaredStream(Protocol):
    """A decorated function, or another object with a stream declaration."""

    @property
    def spec(self) -> StreamSpec:
        """Return the declaration."""


_streams = DeclaredNames[DeclaredStream]("stream", hint="pass another name=")
streams = _streams.all
clear = _streams.clear


def register(stream: DeclaredStream) -> None:
    """Register a stream; raise for a name declared at another line, unless its file was edited in between."""
    _streams.declare(stream.spec.name, stream, stream.spec.where)


def find(name: str) -> StreamSpec | None:
    """Return the stream of that name, or None."""
    stream = _streams.all().get(name)
    return stream.spec if stream is not None else None


def get(name: str) -> StreamSpec:
    """Return the stream of that name; raise an UnknownName (a KeyError) with the nearest name if there is none."""
    return _streams.get(name).spec
