"""A table that follows changes in files: one micro-batch for each call, without a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ematix_flow import CDC, ObjectStoreLocalConnection, run_streaming_pipeline
from ematix_flow.declare.connections import Connection
from tests.contract.loading import unique
from tests.harness.arrivals import put_whole
from tests.streams.change_events import Message


class Followed:
    """A folder of JSON lines, and a stream that is drained into a target."""

    def __init__(self, connection: Connection, folder: Path) -> None:
        self._connection, self.folder, self._files = connection, folder, 0
        self.name = unique("followed")
        (folder / "in" / "changes").mkdir(parents=True)

    def __call__(self, target: Any, *messages: Message, cdc: CDC | None = None, **options: Any) -> Any:
        """Write the messages as one file, and drain it."""
        self._files += 1
        lines = "".join(f"{message['value'].decode()}\n" for message in messages)
        put_whole(self.folder / "in" / "changes" / f"{self._files:04}.jsonl", lines)
        if isinstance(target, tuple):
            options |= {"target": self._connection, "target_table": target}
        else:
            options |= {"target": target, "target_connection": self._connection}
        source = ObjectStoreLocalConnection(name="in", path=str(self.folder / "in"), format="json_lines")
        always = {"name": self.name, "checkpoint": str(self.folder / "checkpoint"), "cdc": cdc or CDC()}
        return run_streaming_pipeline(source=source, source_query="changes", once=True, **{**always, **options})
