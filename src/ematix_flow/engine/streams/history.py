"""A stream in the run log: one record from its start to its end, with figures that are renewed while it runs."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import FlowError
from ematix_flow.foundation.redact import mask
from ematix_flow.observe.metrics.streaming import StreamMetrics
from ematix_flow.runlog.records import RunRecord
from ematix_flow.runlog.worker import this_worker

if TYPE_CHECKING:
    from ematix_flow.runlog.protocol import RunLog

RENEW_SECONDS = 10.0


@dataclass
class StreamRecord:
    """What the run log says of this run of the stream."""

    run_log: RunLog | None
    spec: StreamSpec
    metrics: StreamMetrics
    started_at: datetime = field(default_factory=now)
    run_id: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    _written: float = 0.0

    def __post_init__(self) -> None:
        self.run_id = f"{self.spec.name}-stream-{self.started_at:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"

    @classmethod
    @contextmanager
    def kept(cls, run_log: RunLog | None, spec: StreamSpec, metrics: StreamMetrics) -> Iterator[StreamRecord]:
        """Say running, then how it ended."""
        record = cls(run_log, spec, metrics)
        record._write("running", None)
        try:
            yield record
        except BaseException as exc:
            record._write("failed", exc)
            raise
        record._write("succeeded", None)

    def renew(self) -> None:
        """New figures, now and then."""
        if time.monotonic() - self._written > RENEW_SECONDS:
            self._write("running", None)

    def restarted(self, error: FlowError, times: int) -> None:
        """The stream failed and begins again."""
        self.metrics.add("restarts_total")
        self.metrics.add("errors_total")
        self.events.append({"at": now().isoformat(), "what": "restart", "times": times, "error": mask(error.what)})
        del self.events[:-50]
        self._write("running", None)

    def _write(self, status: str, error: BaseException | None) -> None:
        self._written = time.monotonic()
        if self.run_log is None:
            return
        ended = None if status == "running" else now()
        extras: dict[str, Any] = {
            **self.metrics.told(),
            "snapshot_at": now().isoformat(),
            "events": list(self.events),
            "worker": this_worker(),
        }
        if isinstance(error, FlowError):
            extras["error"] = error.to_dict()
        said = mask(str(getattr(error, "what", error))) if error else None
        with suppress(FlowError):
            self.run_log.record_run_record(
                RunRecord(
                    run_id=self.run_id,
                    pipeline=self.spec.name,
                    status=status,
                    started_at=self.started_at,
                    finished_at=ended,
                    error_summary=said,
                    kind="streaming",
                    extras=extras,
                )
            )
            if ended is not None:
                self.run_log.record_run(self.spec.name, ended, error is None)
