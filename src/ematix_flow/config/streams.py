"""Lookup of a stream's named connections, and the checks that need more than their names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ematix_flow.config.resolve import resolve
from ematix_flow.declare.connections import Connection
from ematix_flow.declare.streams.options import StreamOptions, said_sources, stream_from
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.declare.streams.targets import said_targets
from ematix_flow.foundation.errors import FlowError
from ematix_flow.foundation.secrets import expand, references


def settled(spec: StreamSpec) -> StreamSpec:
    """Return the same stream with connections in place of their names; references to secrets are not expanded."""
    try:
        options = StreamOptions.parse(spec.captured, spec.where)
        sources = [replace(source, connection=_found(source.connection)) for source in said_sources(options)]
        targets = [replace(target, connection=_found(target.connection)) for target in said_targets(options)]
        for lookup in spec.lookups.values():
            resolve(lookup.connection)
    except FlowError as error:
        error.at(spec.where)
        raise
    single = [name for name in options.given() if name.startswith("target_")]
    said = replace(
        options, source=None, source_query=None, sources=sources, target=None, targets=targets,
        **dict.fromkeys(single),
    )  # fmt: skip
    made = stream_from(said, spec.where)
    return replace(spec, sources=made.sources, targets=made.targets, start=made.start)


def _found(connection: Any) -> Connection:
    """Return the connection of this name, with a reference in `auto_offset_reset` expanded."""
    found = resolve(connection).connection
    begin = getattr(found, "auto_offset_reset", None)
    if begin and references(begin):
        return replace(found, auto_offset_reset=expand(begin, secret=False)).placed(found.declared_at)  # type: ignore[call-arg]
    return found
