"""The location of a stream's dead letters: a database, or a topic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ematix_flow.backends.catalog import backend_for
from ematix_flow.config.resolve import resolve
from ematix_flow.declare.connections import SQLiteConnection
from ematix_flow.declare.streams.spec import StreamSpec, TableTarget
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.streaming.runtime.checkpoint_folder import CheckpointFolder


def dead_letter_connection(spec: StreamSpec, folder: CheckpointFolder) -> Any:
    """Return the database of the dead letters: the first target that is one, else a file beside the checkpoint."""
    for target in spec.targets:
        if isinstance(target, TableTarget):
            connection = resolve(target.connection).connection
            backend = backend_for(connection)
            if backend.sql is not None and backend.client is not None and "merge" in backend.strategies:
                return connection
    if not isinstance(folder.root, Path):
        raise ConfigError(
            f"{spec.name} has no database for its dead letters, and its checkpoint is in a bucket",
            hint="name a dead_letter_topic, or keep the checkpoint in a folder",
            where=spec.where,
        )
    return SQLiteConnection(name=f"{spec.name}-dead-letters", path=str(folder.root / "dead_letters.db"))


def dead_letter_topic(spec: StreamSpec) -> str | None:
    """Return the topic that takes a stream's dead letters; None where a table does."""
    bad = spec.bad_rows
    if bad.topic is None or bad.store not in ("auto", "topic"):
        return None
    source = backend_for(resolve(spec.sources[0].connection).connection)
    return bad.topic if source.dead_letter_topic is not None else None
