"""Lookup of a stream's named connections, and the checks that need more than their names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ematix_flow.config.resolve import resolve
from ematix_flow.declare.connections import Connection
from ematix_flow.declare.streams.options import StreamOptions, declared_sources, stream_from
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.declare.streams.targets import declared_targets
from ematix_flow.foundation.errors import located
from ematix_flow.foundation.secrets import expand, references_in


def with_resolved_connections(spec: StreamSpec) -> StreamSpec:
    """Return the same stream with connections in place of their names; references to secrets are not expanded."""
    with located(spec.where):
        options = StreamOptions.parse(spec.captured, spec.where)
        sources = [
            replace(source, connection=_resolved_connection(source.connection)) for source in declared_sources(options)
        ]
        targets = [
            replace(target, connection=_resolved_connection(target.connection)) for target in declared_targets(options)
        ]
        for lookup in spec.lookups.values():
            resolve(lookup.connection)
    single = [name for name in options.set_options() if name.startswith("target_")]
    resolved_options = replace(
        options, source=None, source_query=None, sources=sources, target=None, targets=targets,
        **dict.fromkeys(single),
    )  # fmt: skip
    resolved_spec = stream_from(resolved_options, spec.where)
    return replace(spec, sources=resolved_spec.sources, targets=resolved_spec.targets, start=resolved_spec.start)


def _resolved_connection(connection: Any) -> Connection:
    """Return the connection of this name, with a reference in `auto_offset_reset` expanded."""
    resolved = resolve(connection).connection
    begin = getattr(resolved, "auto_offset_reset", None)
    if begin and references_in(begin):
        return replace(resolved, auto_offset_reset=expand(begin, secret=False)).placed(resolved.declared_at)  # type: ignore[call-arg]
    return resolved
