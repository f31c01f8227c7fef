"""A broker without offsets as the source of a stream: everything but what the broker itself must say."""

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

from ematix_flow.contract.stream import Lost, Offsets, PartitionLag, StreamRead
from ematix_flow.families.spool import segments
from ematix_flow.families.spool.folder import Folder, folder_at, spool_folder
from ematix_flow.families.spool.ledger import Offset
from ematix_flow.families.spool.receiver import Limits, MakeReceiver
from ematix_flow.families.spool.segments import Segment
from ematix_flow.families.spool.spool import leave_note, leave_refusals
from ematix_flow.foundation.errors import DeclarationError, Unsupported
from ematix_flow.foundation.names import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.families.spool.reader import Settings

_CHECKPOINTS = "EMATIX_FLOW_CHECKPOINTS"
_OPTIONS = ("drain", "window")


@dataclass
class SpoolSource(ABC):
    """Messages of one connection, through a spool below the stream's checkpoint."""

    connection: Any
    envelopes: bool = field(default=True, init=False)

    @abstractmethod
    def receiver(self, read: StreamRead) -> MakeReceiver:
        """What makes the consumer, in another process."""

    @abstractmethod
    def check(self, read: StreamRead) -> None:
        """Refuse, with a sentence, what cannot be reached or is not there."""

    @abstractmethod
    def waiting(self, read: StreamRead) -> int | None:
        """How many messages wait at the broker, where it tells."""

    def frame(self, spark: SparkSession, read: StreamRead) -> DataFrame:
        """A streaming frame of envelopes."""
        from ematix_flow.families.spool.reader import data_source

        settings = self.settings(read)
        name = f"flow_spool_{blake2b(str(settings.folder).encode(), digest_size=8).hexdigest()}"
        spark.dataSource.register(data_source(name, settings))
        return spark.readStream.format(name).load()

    def settings(self, read: StreamRead) -> Settings:
        """What the process that holds the connection needs to know."""
        from ematix_flow.families.spool.reader import Settings

        self.refuse_odd(read)
        return Settings(self.folder(read).root, read.query, self.receiver(read), self.limits(read))

    def refuse_odd(self, read: StreamRead) -> None:
        """What no queue can do."""
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

    def limits(self, read: StreamRead) -> Limits:
        """With `options["drain"]` one batch takes everything that is there; `options["window"]` bounds what is under way."""
        limits = Limits(max_rows=read.max_rows, drain=bool(read.options.get("drain", False)))
        wanted = read.options.get("window") or max(limits.window, 2 * (read.max_rows or 0))
        return replace(limits, window=int(wanted))

    def folder(self, read: StreamRead) -> Folder:
        """The spool's own."""
        return folder_at(spool_folder(read.checkpoint, f"{self.connection.name}.{read.query}"))

    def committed(self, read: StreamRead, end: Offsets) -> None:
        """A note for the process that holds the connection: it acknowledges what lies before."""
        leave_note(self.folder(read), Offset.of(end))

    def refuse(self, read: StreamRead, positions: Sequence[int], *, batch: str = "") -> None:
        """These messages of the batch at work (their `offset`) shall not be acknowledged when it is committed, but
        rejected, so that the broker dead-letters them where it is told to; said again of a batch, the last word counts."""
        leave_refusals(self.folder(read), positions, batch)

    def check_refused_are_kept(self, read: StreamRead) -> None:  # noqa: B027  a broker that always keeps them has nothing to say
        """Refuse, with a sentence, a queue whose rejected messages nobody would keep."""

    def lag(self, read: StreamRead, end: Offsets) -> Sequence[PartitionLag]:
        """What waits at the broker and what lies in the spool behind these offsets; of a broker that does not count, the
        spool alone."""
        there, folder = self.waiting(read), self.folder(read)
        reached = Offset.of(end).segment if end else 0
        listed = (Segment.of(name) for name in folder.names())
        ahead = sorted(segment for segment in listed if segment is not None and segment.number > reached)
        spooled = sum(segment.rows for segment in ahead)
        seconds = _age_of_oldest(folder, ahead[0]) if ahead else (0.0 if there == 0 else None)
        if there is None and ahead:
            return [PartitionLag(f"{read.query} (spool)", spooled, seconds)]
        return [PartitionLag(read.query, None if there is None else there + spooled, seconds)]

    def lost(self, read: StreamRead, end: Offsets) -> Sequence[Lost]:
        """A queue keeps what was not acknowledged."""
        return ()

    def offsets_at(self, read: StreamRead, moment: datetime) -> Offsets:
        """A queue has no past."""
        raise Unsupported(
            f"{read.stream}: a {self.connection.kind} source cannot be rewound to a moment",
            hint="messages that were acknowledged are gone from it; publish them again",
        )

    def close(self) -> None:  # noqa: B027  nothing to do is right for all of them
        """The connection is held by another process, which ends with the query."""


def _age_of_oldest(folder: Folder, segment: Segment) -> float | None:
    """Since the first of its messages was sent; where none says when, since they came; None when they are done by now.

    What still waits at the broker is younger, and how old it is only a delivery would tell.
    """
    try:
        sent = segments.oldest(folder.path(segment.name))
        since = sent if sent is not None else folder.written_at(segment.name)
    except FileNotFoundError:
        return None
    return max(0.0, time.time() - since)


def checkpoint_roots(_: Any) -> tuple[Path, ...]:
    """Where spools are unless `checkpoint=` names another folder: tasks read the segments there."""
    own = os.environ.get(_CHECKPOINTS)
    return (Path(own) if own else Path.home() / ".ematix-flow" / "checkpoints",)


def plain_name(text: str) -> str:
    """A name for clients that show who is connected."""
    return re.sub(r"[^\w.@:-]", "_", text)[:100]
