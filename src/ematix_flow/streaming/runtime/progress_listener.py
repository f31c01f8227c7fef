"""Reports every committed micro-batch to brokers, metrics and the run log."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ematix_flow.foundation import fault
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.redact import mask
from ematix_flow.metrics.streaming import StreamMetrics
from ematix_flow.streaming.runtime.opening import OpenStream
from ematix_flow.streaming.runtime.periodic_metrics import PeriodicMetrics
from ematix_flow.streaming.runtime.run_history import StreamRunHistory
from ematix_flow.streaming.state.processor import StatefulProcessor

_log = logging.getLogger(__name__)


class QueryMonitor:
    """A monitor of one query; its own errors are logged and harm nothing: the micro-batch is committed already."""

    def __init__(
        self,
        opened: OpenStream,
        metrics: StreamMetrics,
        history: StreamRunHistory,
        listener: Callable[[Mapping[str, Any]], None] | None,
    ) -> None:
        self._opened, self._metrics, self._history, self._listener = opened, metrics, history, listener
        self._measuring = PeriodicMetrics(opened, metrics)
        self._last_reported = self._last_seen = -1
        self._counted: dict[str, int] = {}
        self._one_at_a_time, self._over = threading.Lock(), False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen while the block runs."""
        from pyspark.sql.streaming.listener import StreamingQueryListener

        watching = self

        class Listener(StreamingQueryListener):
            def onQueryStarted(self, event: Any) -> None:  # noqa: N802  Spark's own names
                pass

            def onQueryProgress(self, event: Any) -> None:  # noqa: N802
                watching._on_progress_event(json.loads(event.progress.json))

            def onQueryIdle(self, event: Any) -> None:  # noqa: N802
                watching._safely(watching.on_idle)

            def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
                pass

        listener = Listener()
        self._opened.spark.streams.addListener(listener)
        try:
            yield
        finally:
            with self._one_at_a_time:
                self._over = True
            self._opened.spark.streams.removeListener(listener)

    def _safely(self, work: Callable[[], None]) -> None:
        """Run one listener call at a time, and none after the end: Spark calls late and on threads of its own."""
        with self._one_at_a_time:
            if self._over:
                return
            try:
                work()
            except Exception as exc:
                _log.warning("after a batch: %s", mask(str(getattr(exc, "what", exc))))

    def _on_progress_event(self, progress: Mapping[str, Any]) -> None:
        self._safely(lambda: self.on_progress(progress))

    def on_progress(self, progress: Mapping[str, Any]) -> None:
        """Report a micro-batch that is in the checkpoint; one that is reported twice is counted once."""
        batch = int(progress.get("batchId", -1))
        if batch <= self._last_seen:
            return
        self._last_seen = batch
        if batch != self._last_reported:
            fault.point("after_checkpoint")
            self._report_batch(batch)
        # Spark counts a message as often as it reads it, and a batch is read again when something was learned.
        seen = self._opened.work.counts.read.pop(batch, None)
        rows = seen if seen is not None else int(progress.get("numInputRows") or 0)
        self._metrics.add("rows_consumed_total", rows)
        before = self._metrics.values["dlq_writes_total"]
        self._count()
        update_metrics(progress, self._metrics)
        has_new_letters = self._metrics.values["dlq_writes_total"] > before
        self._measuring.measure_if_due(self._reached(), has_new_letters=has_new_letters)
        self._history.renew()
        if self._listener is not None:
            self._listener({**progress, "numInputRows": rows})

    def on_start(self) -> None:
        """Measure the lag when the query starts."""
        self._safely(lambda: self._measuring.measure_now(self._reached()))

    def on_idle(self) -> None:
        """Update the figures when nothing came for a while; a target may have caught up meanwhile."""
        self._metrics.add("idle_iterations_total")
        self._count()
        self._measuring.measure_if_due(self._reached())
        self._history.renew()

    def finish(self, query: Any) -> None:
        """Report the micro-batches that were not reported yet, after the query has ended."""
        for progress in query.recentProgress:
            self._on_progress_event(json.loads(progress.json))
        last = self._opened.folder.last_committed()
        if last is not None and last != self._last_reported:
            self._safely(lambda: self._report_batch(last))

    def on_end(self) -> None:
        """Record the last figures, after the query has finished its work."""
        self._safely(self._count)
        self._safely(lambda: self._measuring.measure_now(self._reached()))

    def on_failure(self) -> None:
        """Count the errors of a failed query; the next one retries, and counts, its unfinished micro-batch."""
        self._add_grown("errors_total", self._opened.work.counts.errors)

    def _report_batch(self, batch: int) -> None:
        ends = self._opened.folder.ends(batch)
        for (source, read), end in zip(self._opened.sources, ends, strict=False):
            if end:
                source.committed(read, end)
        self._last_reported = batch
        source_ends = ends[: len(self._opened.sources)]
        self._history.reached = {"batch": batch, "offsets": source_ends[0] if len(source_ends) == 1 else source_ends}

    def _reached(self) -> int:
        """Return the last committed micro-batch, also when an earlier attempt committed it; -1 where there is none."""
        if self._last_reported >= 0:
            return self._last_reported
        last = self._opened.folder.last_committed()
        return -1 if last is None else last

    def _count(self) -> None:
        """Add this attempt's counts to the metrics; call it when all of its work is committed."""
        counts = self._opened.work.counts
        self._add_grown("rows_written_total", counts.written)
        self._add_grown("batches_total", counts.batches)
        self._add_grown("dlq_writes_total", counts.bad)
        self._add_grown("errors_total", counts.errors)
        for name, total in counts.more.items():
            self._add_grown(name, total)
        if counts.behind:
            self._metrics.set("targets_behind", sum(counts.behind.values()))
        if self._opened.processor is not None:
            self._report_state(self._opened.processor)

    def _report_state(self, processor: StatefulProcessor) -> None:
        """Set the metrics of the state and of event time."""
        kept = processor.last
        if kept is None:
            return
        self._metrics.set("state_rows", kept.rows)
        self._metrics.set("state_groups_total", kept.rows)
        self._metrics.set("windows_active", kept.rows if self._opened.spec.window is not None else 0)
        names = [source.query for source in self._opened.spec.sources]
        reached = {**dict(zip(names, kept.newest, strict=False)), "_global": kept.mark}
        self._metrics.watermarks = {name: at / 1_000_000 for name, at in reached.items() if at is not None}
        if kept.mark is not None:
            self._metrics.set("watermark_delay_seconds", now().timestamp() - kept.mark / 1_000_000)

    def _add_grown(self, name: str, total: int) -> None:
        self._metrics.add(name, total - self._counted.get(name, 0))
        self._counted[name] = total


def update_metrics(progress: Mapping[str, Any], metrics: StreamMetrics) -> None:
    """Set the metrics that Spark reports of a micro-batch."""
    metrics.set("batch_duration_seconds", (progress.get("durationMs") or {}).get("triggerExecution", 0) / 1000)
    metrics.set("rows_per_second", progress.get("processedRowsPerSecond") or 0.0)
