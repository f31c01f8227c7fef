"""Workers as processes on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import cast

from ematix_flow.executors.protocol import (
    DispatchError,
    DispatchHandle,
    DispatchSpec,
    worker_arguments,
    worker_environment,
)


class SubprocessExecutor:
    """One `flow run` process per run; a worker outlives the scheduler that started it."""

    def __init__(
        self, *, flow_binary: str | None = None, python: str | None = None, inherit_stdio: bool = True
    ) -> None:
        self._command = _command(flow_binary, python)
        self._inherits = inherit_stdio

    def dispatch(self, spec: DispatchSpec) -> DispatchHandle:
        """Start `flow run` in its own session, so that a signal that ends the scheduler does not end the run."""
        try:
            process = start_session(
                [*self._command, *worker_arguments(spec)],
                {**os.environ, **worker_environment(spec)},
                inherit_stdio=self._inherits,
            )
        except OSError as error:
            raise DispatchError(
                f"no worker could be started for {spec.pipeline_name}: {error.strerror or error}",
                hint="see memory and the limit of processes",
            ) from error
        return DispatchHandle(spec.pipeline_name, "subprocess", process, spec.run_id)

    def cancel(self, handle: DispatchHandle) -> None:
        """Send SIGTERM: the worker rolls back and records the run."""
        process = cast("subprocess.Popen[bytes]", handle.ref)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)

    def has_ended(self, handle: DispatchHandle) -> bool | None:
        """Return whether the process has ended, and reap it if so."""
        return cast("subprocess.Popen[bytes]", handle.ref).poll() is not None

    def close(self, *, wait: bool) -> None:
        """Do nothing: workers continue, and the next leader finds their runs in the run log."""


def python_subprocess_executor() -> SubprocessExecutor:
    """Return an executor that starts `python -m ematix_flow.cli`, for systems without `flow` on the PATH."""
    return SubprocessExecutor(python=sys.executable)


def start_session(
    words: Sequence[str], environment: Mapping[str, str], *, inherit_stdio: bool
) -> subprocess.Popen[bytes]:
    """Start a program without input in its own session; raise OSError if that fails."""
    quiet = None if inherit_stdio else subprocess.DEVNULL
    return subprocess.Popen(  # noqa: S603  programs of this package and of Spark, no shell
        words, env=environment, stdin=subprocess.DEVNULL, stdout=quiet, stderr=quiet, start_new_session=True
    )


def _command(flow_binary: str | None, python: str | None) -> list[str]:
    if python is not None:
        return [python, "-m", "ematix_flow.cli"]
    beside = os.path.join(os.path.dirname(sys.executable), "flow")
    program = flow_binary or (beside if os.access(beside, os.X_OK) else shutil.which("flow"))
    if program is None:
        raise DispatchError("there is no `flow` on the PATH", hint="use --executor subprocess+python://")
    return [program]
