"""The streams that this process has declared, by name."""

from __future__ import annotations

from typing import Protocol

from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.foundation.errors import DeclarationError, UnknownName
from ematix_flow.foundation.location import Location
from ematix_flow.foundation.names import did_you_mean


class DeclaredStream(Protocol):
    """A decorated function, or whatever else knows a stream."""

    @property
    def spec(self) -> StreamSpec:
        """The declaration."""


_streams: dict[str, DeclaredStream] = {}


def register(stream: DeclaredStream) -> None:
    """Remember a stream; the same name twice is refused unless it is the same line (a cell or module run again)."""
    spec = stream.spec
    known = _streams.get(spec.name)
    if known is not None and not _same_line(known.spec.where, spec.where):
        raise DeclarationError(
            f"a stream {spec.name!r} is already declared at {known.spec.where}",
            where=spec.where,
            hint="pass another name=",
        )
    _streams[spec.name] = stream


def streams() -> dict[str, DeclaredStream]:
    """All streams by name, in order of declaration."""
    return dict(_streams)


def find(name: str) -> StreamSpec | None:
    """The stream of that name, or None."""
    found = _streams.get(name)
    return found.spec if found is not None else None


def get(name: str) -> StreamSpec:
    """The stream of that name; an UnknownName (a KeyError) with the nearest one otherwise."""
    found = find(name)
    if found is None:
        raise UnknownName(f"no stream is called {name!r}", hint=did_you_mean(name, _streams))
    return found


def clear() -> None:
    """Forget everything; for tests."""
    _streams.clear()


def _same_line(one: Location | None, other: Location | None) -> bool:
    if one is None or other is None:
        return False
    in_a_cell = "ipykernel" in one.file or one.file.startswith("<")
    return (one.file, one.line) == (other.file, other.line) or in_a_cell
