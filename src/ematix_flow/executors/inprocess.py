"""Workers as threads of the scheduler: one Spark session serves many runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import cast

from ematix_flow.executors.protocol import DispatchError, DispatchHandle, DispatchSpec

ExecuteRun = Callable[[DispatchSpec, Callable[[], bool]], None]
"""A function that executes one run; its second argument returns whether the run should stop."""


@dataclass
class _WorkerThread:
    stopped: threading.Event = field(default_factory=threading.Event)
    future: Future[None] | None = None


class InprocessExecutor:
    """Workers in threads of this process; they end with it, and the next leader marks their runs as lost."""

    def __init__(self, *, threads: int = 64) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="run")
        self._execute: ExecuteRun | None = None

    def run_with(self, carry: ExecuteRun) -> None:
        """Set the function that executes runs; the scheduler command calls this before the first dispatch."""
        self._execute = carry

    def dispatch(self, spec: DispatchSpec) -> DispatchHandle:
        """Start the run in a thread."""
        if self._execute is None:
            raise DispatchError("inprocess:// runs inside a scheduler only", hint="start it with flow scheduler")
        worker = _WorkerThread()
        worker.future = self._pool.submit(self._execute, spec, worker.stopped.is_set)
        return DispatchHandle(spec.pipeline_name, "inprocess", worker, spec.run_id)

    def cancel(self, handle: DispatchHandle) -> None:
        """Make the run stop before its next step."""
        cast(_WorkerThread, handle.ref).stopped.set()

    def has_ended(self, handle: DispatchHandle) -> bool | None:
        """Return whether the thread has finished the run."""
        future = cast(_WorkerThread, handle.ref).future
        return future is None or future.done()

    def close(self, *, wait: bool) -> None:
        """Stop the threads: with `wait`, return after all runs; without, drop the runs that have not started."""
        self._pool.shutdown(wait=wait, cancel_futures=not wait)
