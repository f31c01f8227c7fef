"""Metrics that need queries, and are therefore measured rarely: lag, number of dead letters, size of the state."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable

from ematix_flow.contract.stream import Offsets, StreamRead
from ematix_flow.declare.streams.spec import DLQ, StreamSpec
from ematix_flow.engine.streams.desk import stats
from ematix_flow.engine.streams.opening import OpenStream
from ematix_flow.foundation.redact import mask
from ematix_flow.observe.metrics.streaming import StreamMetrics

_log = logging.getLogger(__name__)
LAG_SECONDS = 5.0
DEPTH_SECONDS = 30.0
_DEPTH_SECONDS_WHEN_BAD = 5.0
"""The interval where every batch has bad rows: their store is not queried after each one."""


class Measuring:
    """Periodic measurements for the metrics; a failing one is logged as a warning once, and harms nothing."""

    def __init__(self, opened: OpenStream, metrics: StreamMetrics) -> None:
        self._opened, self._metrics = opened, metrics
        self._asked: dict[str, float] = {}
        self._failing: set[str] = set()

    def now_and_then(self, reached: int, *, has_new_letters: bool = False) -> None:
        """Take measurements due after a micro-batch or an idle period; `reached` is the last committed micro-batch."""
        self._rarely("lag", LAG_SECONDS, lambda: self._lag(reached))
        self._rarely("depth", _DEPTH_SECONDS_WHEN_BAD if has_new_letters else DEPTH_SECONDS, self._depth)
        if self._opened.fold is not None:
            self._rarely("size of the state", LAG_SECONDS, self._size)

    def at_once(self, reached: int) -> None:
        """Measure now: at the start and at the end of a stream."""
        self._asked.clear()
        self.now_and_then(reached)

    def _rarely(self, what: str, seconds: float, ask: Callable[[], None]) -> None:
        if time.monotonic() - self._asked.get(what, float("-inf")) < seconds:
            return
        try:
            ask()
            self._failing.discard(what)
        except Exception as exc:
            level = logging.DEBUG if what in self._failing else logging.WARNING
            _log.log(level, "the %s cannot be told: %s", what, mask(str(getattr(exc, "what", exc))))
            self._failing.add(what)
        self._asked[what] = time.monotonic()

    def _lag(self, reached: int) -> None:
        sources = self._opened.sources
        ends = self._opened.folder.ends(reached) if reached >= 0 else [_beginning(read) for _, read in sources]
        self._metrics.lag = [
            item
            for (source, read), end in zip(sources, ends, strict=False)
            if end is not None
            for item in source.lag(read, end)
        ]

    def _size(self) -> None:
        fold = self._opened.fold
        if fold is not None and fold.last is not None:
            self._metrics.set("state_bytes", fold.keeper.size(fold.last.parts))

    def _depth(self) -> None:
        if keeps_letters(self._opened.spec):
            self._metrics.set("dlq_depth", sum(stats(self._opened.spec)["depth"].values()))


def keeps_letters(spec: StreamSpec) -> bool:
    """Return whether dead letters are stored where they can be counted; a broker counts its own."""
    return spec.bad_rows.policy == DLQ and spec.bad_rows.store != "broker"


def _beginning(read: StreamRead) -> Offsets | None:
    """Return the offsets at which a stream begins without a checkpoint; None where only its source can resolve them."""
    if read.start == "earliest":
        return {}
    try:
        said = json.loads(read.start)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None
