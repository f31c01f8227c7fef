"""A broker without offsets as the source of a stream; subclasses add the calls to their broker."""

from __future__ import annotations

import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.stream import Offsets, PartitionLag, StreamRead, StreamSource
from ematix_flow.foundation.errors import DeclarationError, Unsupported
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.spool import segments
from ematix_flow.spool.folder import SpoolFolder, spool_folder, spool_folder_at
from ematix_flow.spool.ledger import SpoolOffset
from ematix_flow.spool.receiver import MakeReceiver, SpoolLimits
from ematix_flow.spool.segments import Segment
from ematix_flow.spool.spool import write_commit_note, write_refusals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.spool.reader import SpoolReaderSettings

_CHECKPOINTS = "EMATIX_FLOW_CHECKPOINTS"
_OPTIONS = ("drain", "window")


@dataclass
class SpoolSource(StreamSource, ABC):
    """The messages of one connection, through a spool below the stream's checkpoint."""

    connection: Any
    envelopes: bool = field(default=True, init=False)

    @abstractmethod
    def receiver(self, read: StreamRead) -> MakeReceiver:
        """Return the factory of the consumer, which is called in another process."""

    @abstractmethod
    def check(self, read: StreamRead) -> None:
        """Raise a FlowError when the broker cannot be reached or the queue does not exist."""

    @abstractmethod
    def waiting(self, read: StreamRead) -> int | None:
        """Return how many messages wait at the broker; None where it does not report that."""

    def frame(self, spark: SparkSession, read: StreamRead) -> DataFrame:
        """Return a streaming frame of envelopes."""
        from ematix_flow.spool.reader import data_source

        settings = self.settings(read)
        name = f"flow_spool_{blake2b(str(settings.folder).encode(), digest_size=8).hexdigest()}"
        spark.dataSource.register(data_source(name, settings))
        return spark.readStream.format(name).load()

    def settings(self, read: StreamRead) -> SpoolReaderSettings:
        """Return the settings of the process that holds the connection."""
        from ematix_flow.spool.reader import SpoolReaderSettings

        self.refuse_unsupported(read)
        return SpoolReaderSettings(self.folder(read).root, read.query, self.receiver(read), self.limits(read))

    def refuse_unsupported(self, read: StreamRead) -> None:
        """Raise for a start position or an option that queues do not support."""
        if read.start != "earliest":
            raise Unsupported(
                f"{read.stream}: a {self.connection.kind} source cannot start at {read.start!r}",
                hint="it gives every message that waits there, and no other; leave the start out",
            )
        for name in read.options:
            if name not in _OPTIONS:
                raise DeclarationError(
                    f"{read.stream}: a {self.connection.kind} source has no option {name!r}",
                    hint=did_you_mean(name, _OPTIONS),
                )

    def limits(self, read: StreamRead) -> SpoolLimits:
        """Return the limits: with "drain" one batch takes everything; "window" bounds the unacknowledged messages."""
        limits = SpoolLimits(max_rows=read.max_rows, drain=bool(read.options.get("drain", False)))
        wanted = read.options.get("window") or max(limits.window, 2 * (read.max_rows or 0))
        return replace(limits, window=int(wanted))

    def folder(self, read: StreamRead) -> SpoolFolder:
        """Return the spool's folder."""
        return spool_folder_at(spool_folder(read.checkpoint, f"{self.connection.name}.{read.query}"))

    def committed(self, read: StreamRead, end: Offsets) -> None:
        """Write the commit note, by which the process with the connection acknowledges everything before `end`."""
        write_commit_note(self.folder(read), SpoolOffset.of(end))

    def refuse(self, read: StreamRead, positions: Sequence[int], *, batch: str = "") -> None:
        """Mark messages of the current batch, by their `offset`, to be rejected instead of acknowledged at its commit.

        The broker then dead-letters them where it is configured to. A second call for the same batch replaces the
        first.
        """
        write_refusals(self.folder(read), positions, batch)

    def check_dead_lettering(self, read: StreamRead) -> None:
        """Raise a FlowError for a queue whose rejected messages the broker would discard."""

    def lag(self, read: StreamRead, end: Offsets) -> Sequence[PartitionLag]:
        """Return what waits at the broker, where it reports that, and in the spool behind these offsets."""
        waiting, folder = self.waiting(read), self.folder(read)
        reached = SpoolOffset.of(end).segment if end else 0
        listed = (Segment.of(name) for name in folder.names())
        ahead = sorted(segment for segment in listed if segment is not None and segment.number > reached)
        spooled = sum(segment.rows for segment in ahead)
        seconds = _age_of_oldest(folder, ahead[0]) if ahead else (0.0 if waiting == 0 else None)
        if waiting is None and ahead:
            return [PartitionLag(f"{read.query} (spool)", spooled, seconds)]
        return [PartitionLag(read.query, None if waiting is None else waiting + spooled, seconds)]

    def offsets_at(self, read: StreamRead, moment: datetime) -> Offsets:
        """Raise Unsupported: a queue keeps no acknowledged messages."""
        raise Unsupported(
            f"{read.stream}: a {self.connection.kind} source cannot be rewound to a moment",
            hint="messages that were acknowledged are gone from it; publish them again",
        )


def _age_of_oldest(folder: SpoolFolder, segment: Segment) -> float | None:
    """Return the age in seconds of a segment's oldest message; None when the segment is already deleted.

    Without send times, the age counts from the arrival in the spool. Messages that still wait at the broker are
    younger; their age is unknown before delivery.
    """
    try:
        sent = segments.oldest_message_time(folder.path(segment.name))
        since = sent if sent is not None else folder.written_at(segment.name)
    except FileNotFoundError:
        return None
    return max(0.0, time.time() - since)


def checkpoint_roots(_: Any) -> tuple[Path, ...]:
    """Return where spools are unless `checkpoint=` names another folder; tasks read the segments there."""
    own = os.environ.get(_CHECKPOINTS)
    return (Path(own) if own else Path.home() / ".ematix-flow" / "checkpoints",)


def plain_name(text: str) -> str:
    """Return the text as a name that broker tools accept and show for a connected client."""
    return re.sub(r"[^\w.@:-]", "_", text)[:100]
