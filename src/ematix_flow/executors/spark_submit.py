"""Workers as Spark applications, started by spark-submit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from ematix_flow.executors.application.main import PID_FILE, SETTINGS_FILE
from ematix_flow.executors.protocol import DispatchError, DispatchHandle, DispatchRefused, DispatchSpec
from ematix_flow.executors.submission import CLIENT, SparkApplication, spark_home
from ematix_flow.executors.subprocess import start_session
from ematix_flow.foundation.errors import FlowError


@dataclass(frozen=True)
class _SubmitProcess:
    """The process of spark-submit, and the folder that it shares with its driver."""

    process: subprocess.Popen[bytes]
    folder: Path

    def driver(self) -> int | None:
        """Return the driver's process id; None unless it runs on this machine."""
        with suppress(OSError, ValueError):
            return int((self.folder / PID_FILE).read_text(encoding="ascii"))
        return None

    def has_ended(self) -> bool:
        if self.process.poll() is None:
            return False
        shutil.rmtree(self.folder, ignore_errors=True)
        return True


class SparkSubmitExecutor:
    """One application per run: the worker is its driver, and the worker's session is the application's."""

    def __init__(
        self,
        *,
        master: str,
        deploy_mode: str = CLIENT,
        conf: Mapping[str, str] | None = None,
        py_files: Sequence[str] = (),
        inherit_stdio: bool = True,
    ) -> None:
        self._application = SparkApplication(master, deploy_mode, dict(conf or {}), tuple(py_files))
        self._program = str(spark_home() / "bin" / "spark-submit")
        self._inherits = inherit_stdio

    def check(self, spec: DispatchSpec) -> None:
        """Raise the configuration errors that are visible from here, before the first run."""
        self._application.check(spec)

    def dispatch(self, spec: DispatchSpec) -> DispatchHandle:
        """Start spark-submit in its own session, so that a signal that ends the scheduler does not end the run."""
        folder = Path(tempfile.mkdtemp(prefix="ematix-flow-submission-"))  # readable by this user only
        try:
            process = self._started(spec, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return DispatchHandle(spec.pipeline_name, "spark-submit", _SubmitProcess(process, folder), spec.run_id)

    def cancel(self, handle: DispatchHandle) -> None:
        """Send SIGTERM to the driver: it rolls back and records the run, and the application ends with it.

        A driver inside the cluster is out of reach: only the spark-submit that waits for it ends.
        """
        submitted = cast("_SubmitProcess", handle.ref)
        if submitted.has_ended():
            return
        driver = submitted.driver()
        with suppress(ProcessLookupError):
            if driver is not None:
                os.kill(driver, signal.SIGTERM)
            else:
                os.killpg(submitted.process.pid, signal.SIGTERM)

    def has_ended(self, handle: DispatchHandle) -> bool | None:
        """Return whether spark-submit has ended, which waits for its application."""
        return cast("_SubmitProcess", handle.ref).has_ended()

    def close(self, *, wait: bool) -> None:
        """Do nothing: applications continue, and the next leader finds their runs in the run log."""

    def _started(self, spec: DispatchSpec, folder: Path) -> subprocess.Popen[bytes]:
        try:
            submission = self._application.submission(spec, folder)
        except DispatchError:
            raise
        except FlowError as error:
            kind = DispatchError if error.retryable else DispatchRefused
            raise kind(f"{spec.pipeline_name} was not submitted: {error.what}", hint=error.hint) from error
        try:
            (folder / SETTINGS_FILE).write_text(submission.settings, encoding="ascii")
            words = ["bash", self._program, *submission.words]  # the interpreter of its shebang
            return start_session(words, submission.environment, inherit_stdio=self._inherits)
        except OSError as error:
            raise DispatchError(
                f"spark-submit could not be started for {spec.pipeline_name}: {error.strerror or error}",
                hint="see memory, the limit of processes and the room for temporary files",
            ) from error
