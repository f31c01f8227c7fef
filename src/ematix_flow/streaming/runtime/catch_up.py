"""Publishes micro-batches that a target missed, while the stream is quiet."""

from __future__ import annotations

import logging
import time

from ematix_flow.foundation.errors import PartialFailure
from ematix_flow.foundation.redact import mask
from ematix_flow.metrics.streaming import StreamMetrics
from ematix_flow.streaming.runtime.micro_batch import MicroBatch

_log = logging.getLogger(__name__)
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0


class CatchUp:
    """A catch-up that runs when the stream was quiet for a while, and with longer pauses as long as a target fails."""

    def __init__(self, work: MicroBatch, metrics: StreamMetrics) -> None:
        self._work, self._metrics = work, metrics
        self._left, self._pause = 0, _FIRST_PAUSE
        self._batches, self._not_before = 0, 0.0

    def begin(self) -> None:
        """Try before the first micro-batch of an attempt."""
        self._try()

    def while_quiet(self) -> None:
        """Try when it is due; called often. A micro-batch publishes missed ones itself."""
        at, batches = time.monotonic(), self._work.counts.batches
        if batches != self._batches:
            self._batches, self._not_before = batches, max(self._not_before, at + _FIRST_PAUSE)
        if self._waiting() and at >= self._not_before:
            try:
                self._try()
            except Exception as exc:  # the next micro-batch, or the next try, reports it again
                _log.warning("catching up: %s", mask(str(getattr(exc, "what", exc))))
                self._back_off()

    def finish(self) -> None:
        """Try a last time for a stream that drains; raise PartialFailure as long as a target is behind."""
        if not self._try():
            return
        behind = {item.name: len(self._work.backlog.waiting(item)) for item in self._work.targets}
        details = ", ".join(f"{name} ({count} micro-batch(es))" for name, count in behind.items() if count)
        raise PartialFailure(
            f"{self._work.spec.name} has read everything, and these targets are behind: {details}",
            hint="make them reachable and run again; what they missed is kept below the checkpoint until they have it",
            where=self._work.spec.where,
        )

    def _waiting(self) -> int:
        return sum(self._work.counts.behind.values()) or self._left

    def _try(self) -> int:
        self._left = self._work.catch_up()
        self._metrics.set("targets_behind", self._left)
        if self._left:
            self._back_off()
        else:
            self._pause = _FIRST_PAUSE
        return self._left

    def _back_off(self) -> None:
        self._not_before = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
