"""Backfill workers as child processes of this process, and the results that they print."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from ematix_flow.backfill.worker import WindowResult
from ematix_flow.foundation.errors import RunFailed

_PATIENCE_SECONDS = 60.0
_USUAL_EXITS = (0, 1, 130)


@dataclass
class WorkerPool:
    """A pool of `flow backfill --worker` processes; the first one runs alone until its first window is settled.

    The first window creates missing tables and shows the errors that every window would have. A worker that crashes is
    not replaced, or a window that kills its worker would do so for ever; the others take its window.
    """

    arguments: Sequence[str]
    """The arguments after `flow` on a worker's command line; they contain no secrets."""
    environment: Mapping[str, str]
    count: int
    on_result: Callable[[WindowResult], None] = lambda _: None
    report: Callable[[str], None] = lambda _: None
    _workers: list[subprocess.Popen[str]] = field(default_factory=list)
    _listeners: list[threading.Thread] = field(default_factory=list)
    _messages: queue.Queue[WindowResult | int] = field(default_factory=queue.Queue)

    def work(self) -> None:
        """Run until the last worker has ended; after an interrupt, interrupt the workers and wait for them."""
        try:
            self._start()
            while any(listener.is_alive() for listener in self._listeners) or not self._messages.empty():
                with suppress(queue.Empty):
                    self._on_message(self._messages.get(timeout=0.5))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Interrupt the workers and wait up to 60 seconds for each, so that it releases its window; then kill it."""
        for worker in self._workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGINT)
        for worker in self._workers:
            try:
                worker.wait(_PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                worker.kill()

    def _on_message(self, result: WindowResult | int) -> None:
        if isinstance(result, int):
            if result not in _USUAL_EXITS:
                reason = f"signal {-result}" if result < 0 else f"exit code {result}"
                self.report(f"a worker ended with {reason}; its window is open again")
                self._start_the_rest()
            return
        self.on_result(result)
        if not result.is_hopeless:
            self._start_the_rest()

    def _start_the_rest(self) -> None:
        while len(self._workers) < self.count:
            self._start()

    def _start(self) -> None:
        try:
            worker = subprocess.Popen(  # noqa: S603  the command is this interpreter
                [sys.executable, "-m", "ematix_flow.cli", *self.arguments, "--worker", str(os.getpid())],
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # an interrupt of the terminal reaches the workers once, through this process
            )
        except OSError as error:
            raise RunFailed(
                f"no worker could be started: {error.strerror or error}", hint="use --parallel 1"
            ) from error
        self._workers.append(worker)
        listener = threading.Thread(target=self._read_output, args=(worker,), daemon=True)
        self._listeners.append(listener)
        listener.start()

    def _read_output(self, worker: subprocess.Popen[str]) -> None:
        for line in worker.stdout or ():
            with suppress(ValueError, KeyError, TypeError):  # a line that no worker of this program wrote
                self._messages.put(WindowResult.from_dict(json.loads(line)))
        self._messages.put(worker.wait())
