"""Workers as threads of the scheduler: one warm Spark session serves many runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import cast

from ematix_flow.executors.protocol import DispatchError, DispatchHandle, DispatchSpec

Carry = Callable[[DispatchSpec, Callable[[], bool]], None]
"""Carries out one run; the second argument says whether it shall stop."""


@dataclass
class _Worker:
    stopped: threading.Event = field(default_factory=threading.Event)
    future: Future[None] | None = None


class InprocessExecutor:
    """Runs in threads of this process; they end with it, and whoever leads next finds them lost."""

    def __init__(self, *, threads: int = 64) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="run")
        self._carry: Carry | None = None

    def carry_with(self, carry: Carry) -> None:
        """What a thread does with a run; the scheduler says so before it hands out the first one."""
        self._carry = carry

    def dispatch(self, spec: DispatchSpec) -> DispatchHandle:
        """Begin it in a thread."""
        if self._carry is None:
            raise DispatchError("inprocess:// runs inside a scheduler only", hint="start it with flow scheduler")
        worker = _Worker()
        worker.future = self._pool.submit(self._carry, spec, worker.stopped.is_set)
        return DispatchHandle(spec.pipeline_name, "inprocess", worker, spec.run_id)

    def cancel(self, handle: DispatchHandle) -> None:
        """It stops before its next step."""
        cast(_Worker, handle.ref).stopped.set()

    def has_ended(self, handle: DispatchHandle) -> bool | None:
        """Whether the thread is through."""
        future = cast(_Worker, handle.ref).future
        return future is None or future.done()

    def close(self, *, wait: bool) -> None:
        """Runs end with the process, so they are waited for."""
        self._pool.shutdown(wait=wait, cancel_futures=not wait)
