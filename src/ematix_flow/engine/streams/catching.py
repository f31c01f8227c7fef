"""Targets that fell behind get what they missed also while nothing comes: at the start, now and then, and at the end."""

from __future__ import annotations

import logging
import time

from ematix_flow.engine.streams.micro_batch import MicroBatch
from ematix_flow.foundation.errors import PartialFailure
from ematix_flow.foundation.redact import mask
from ematix_flow.observe.metrics.streaming import StreamMetrics

_log = logging.getLogger(__name__)
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0


class CatchingUp:
    """Tries when the stream has been quiet for a while, and more rarely as long as a target goes on failing."""

    def __init__(self, work: MicroBatch, metrics: StreamMetrics) -> None:
        self._work, self._metrics = work, metrics
        self._left, self._pause = 0, _FIRST_PAUSE
        self._batches, self._not_before = 0, 0.0

    def begin(self) -> None:
        """Before the first micro-batch of a life."""
        self._try()

    def while_quiet(self) -> None:
        """Asked often; a micro-batch gives a target what it missed itself."""
        at, batches = time.monotonic(), self._work.counts.batches
        if batches != self._batches:
            self._batches, self._not_before = batches, max(self._not_before, at + _FIRST_PAUSE)
        if self._waiting() and at >= self._not_before:
            try:
                self._try()
            except Exception as exc:  # the next micro-batch, or the next try, tells it again
                _log.warning("catching up: %s", mask(str(getattr(exc, "what", exc))))
                self._back_off()

    def finish(self) -> None:
        """The last try of a stream that drains; it has failed as long as a target is behind."""
        if not self._try():
            return
        behind = {item.name: len(self._work.backlog.waiting(item)) for item in self._work.targets}
        said = ", ".join(f"{name} ({count} micro-batch(es))" for name, count in behind.items() if count)
        raise PartialFailure(
            f"{self._work.spec.name} has read everything, and these targets are behind: {said}",
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
