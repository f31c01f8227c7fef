"""A stream in the run log: one record for every attempt of its query, with figures renewed while it runs."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import FlowError
from ematix_flow.foundation.redact import mask
from ematix_flow.metrics.streaming import StreamMetrics
from ematix_flow.run_log.records import RunRecord, to_text
from ematix_flow.run_log.worker import this_worker

if TYPE_CHECKING:
    from ematix_flow.run_log.protocol import RunLog

RENEW_SECONDS = 10.0


@dataclass(frozen=True)
class QueryAttempt:
    """One attempt of the query: from a start, or a restart and the pause before it, to a stop or a failure."""

    run_id: str
    started_at: datetime
    restarts: int = 0
    restart_of: str | None = None
    """The attempt that failed before this one."""
    restart_after: str | None = None
    """The error of that attempt."""

    @classmethod
    def of(cls, stream: str, **before: Any) -> QueryAttempt:
        """Return a new attempt that begins now."""
        at = now()
        return cls(f"{stream}-stream-{at:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}", at, **before)

    def to_extras(self) -> dict[str, Any]:
        """Return the restart fields for the run log."""
        return {"restarts": self.restarts, "restart_of": self.restart_of, "restart_after": self.restart_after}


@dataclass
class StreamRunHistory:
    """The run-log records of one process that runs the stream; figures are counted from its first attempt on."""

    run_log: RunLog | None
    spec: StreamSpec
    metrics: StreamMetrics
    lives: list[QueryAttempt] = field(default_factory=list)
    reached: Mapping[str, Any] = field(default_factory=dict)
    """The last micro-batch and its end offsets, to which a stream that lost its checkpoint can be rewound."""
    _written: float = 0.0

    @classmethod
    @contextmanager
    def recording(cls, run_log: RunLog | None, spec: StreamSpec, metrics: StreamMetrics) -> Iterator[StreamRunHistory]:
        """Record the stream as running, then how the last attempt ended."""
        history = cls(run_log, spec, metrics, [QueryAttempt.of(spec.name)])
        history._write("running")
        try:
            yield history
        except BaseException as exc:
            metrics.add("errors_total")
            history._write("failed", error=exc)
            raise
        history._write("succeeded")

    def has(self, run_id: str) -> bool:
        """Return whether this is one of its attempts: a stop request for any of them is for the stream."""
        return any(life.run_id == run_id for life in self.lives)

    def renew(self) -> None:
        """Record new figures, at most every `RENEW_SECONDS`."""
        if time.monotonic() - self._written > RENEW_SECONDS:
            self._write("running")

    def restarted(self, error: FlowError, times: int) -> None:
        """Record the next attempt, then the failed one: in this order the stream always has a running record."""
        self.metrics.add("restarts_total")
        self.metrics.add("errors_total")
        failed = self.lives[-1]
        after = {"restarts": times, "restart_of": failed.run_id, "restart_after": mask(error.what)}
        self.lives.append(QueryAttempt.of(self.spec.name, **after))
        self._write("running")
        self._write("failed", life=failed, error=error)

    def _write(self, status: str, *, life: QueryAttempt | None = None, error: BaseException | None = None) -> None:
        self._written = time.monotonic()
        if self.run_log is None:
            return
        life, ended = life or self.lives[-1], None if status == "running" else now()
        extras: dict[str, Any] = {
            **self.metrics.to_extras(),
            **life.to_extras(),
            **self.reached,
            "since": to_text(self.lives[0].started_at),
            "snapshot_at": to_text(now()),
            "worker": this_worker(),
        }
        if isinstance(error, FlowError):
            extras["error"] = error.to_dict()
        message = mask(str(getattr(error, "what", error))) if error else None
        with suppress(FlowError):
            self.run_log.record_run_record(
                RunRecord(
                    run_id=life.run_id,
                    pipeline=self.spec.name,
                    status=status,
                    started_at=life.started_at,
                    finished_at=ended,
                    attempt=life.restarts + 1,
                    error_summary=message,
                    kind="streaming",
                    extras=extras,
                )
            )
            if ended is not None:
                self.run_log.record_run(self.spec.name, ended, error is None)
