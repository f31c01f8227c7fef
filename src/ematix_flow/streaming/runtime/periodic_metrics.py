"""Measures the lag of a stream and counts its dead letters, at intervals."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable

from ematix_flow.contract.stream import Offsets, StreamRead
from ematix_flow.declare.streams.spec import DLQ, StreamSpec
from ematix_flow.foundation.redact import mask
from ematix_flow.metrics.streaming import StreamMetrics
from ematix_flow.streaming.dlq.service import letter_stats
from ematix_flow.streaming.runtime.opening import OpenStream

_log = logging.getLogger(__name__)
LAG_SECONDS = 5.0
DEPTH_SECONDS = 30.0
_DEPTH_SECONDS_WHEN_BAD = 5.0
"""The interval where every batch has bad rows: their store is not queried after each one."""


class PeriodicMetrics:
    """Periodic measurements for the metrics; a failing one is logged as a warning once, and harms nothing."""

    def __init__(self, opened: OpenStream, metrics: StreamMetrics) -> None:
        self._opened, self._metrics = opened, metrics
        self._measured_at: dict[str, float] = {}
        self._failing: set[str] = set()

    def measure_if_due(self, reached: int, *, has_new_letters: bool = False) -> None:
        """Take measurements due after a micro-batch or an idle period; `reached` is the last committed micro-batch."""
        self._at_most_every("lag", LAG_SECONDS, lambda: self._lag(reached))
        self._at_most_every("depth", _DEPTH_SECONDS_WHEN_BAD if has_new_letters else DEPTH_SECONDS, self._depth)
        if self._opened.processor is not None:
            self._at_most_every("size of the state", LAG_SECONDS, self._size)

    def measure_now(self, reached: int) -> None:
        """Measure now: at the start and at the end of a stream."""
        self._measured_at.clear()
        self.measure_if_due(reached)

    def _at_most_every(self, what: str, seconds: float, ask: Callable[[], None]) -> None:
        if time.monotonic() - self._measured_at.get(what, float("-inf")) < seconds:
            return
        try:
            ask()
            self._failing.discard(what)
        except Exception as exc:
            level = logging.DEBUG if what in self._failing else logging.WARNING
            _log.log(level, "the %s cannot be determined: %s", what, mask(str(getattr(exc, "what", exc))))
            self._failing.add(what)
        self._measured_at[what] = time.monotonic()

    def _lag(self, reached: int) -> None:
        sources = self._opened.sources
        ends = self._opened.folder.ends(reached) if reached >= 0 else [_initial_offsets(read) for _, read in sources]
        self._metrics.lag = [
            item
            for (source, read), end in zip(sources, ends, strict=False)
            if end is not None
            for item in source.lag(read, end)
        ]

    def _size(self) -> None:
        processor = self._opened.processor
        if processor is not None and processor.last is not None:
            self._metrics.set("state_bytes", processor.backend.size(processor.last.parts))

    def _depth(self) -> None:
        if counts_letters(self._opened.spec):
            self._metrics.set("dlq_depth", sum(letter_stats(self._opened.spec)["depth"].values()))


def counts_letters(spec: StreamSpec) -> bool:
    """Return whether dead letters are stored where they can be counted; a broker counts its own."""
    return spec.bad_rows.policy == DLQ and spec.bad_rows.store != "broker"


def _initial_offsets(read: StreamRead) -> Offsets | None:
    """Return the offsets at which a stream begins without a checkpoint; None where only its source can resolve them."""
    if read.start == "earliest":
        return {}
    try:
        data = json.loads(read.start)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None
