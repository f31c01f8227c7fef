"""Execution of one pipeline for a command: progress during the run, a report at its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.cli import failure, report
from ematix_flow.cli.advice import aftermath, interrupted, next_command
from ematix_flow.cli.module import Loaded, talk_only
from ematix_flow.cli.outcome import Failed, Skipped, loaded_beside
from ematix_flow.cli.output import Output
from ematix_flow.cli.progress import Progress, progress_for
from ematix_flow.cli.steps import doing
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.foundation.errors import FlowError
from ematix_flow.runlog.protocol import RunLog

if TYPE_CHECKING:
    from ematix_flow.engine.result import Event, Result

Work = Callable[[PipelineSpec, Callable[["Event"], None]], "Result"]


@dataclass(frozen=True)
class Runner:
    """Runs the pipelines of a command and reports their results."""

    work: Work
    output: Output
    module: Loaded
    run_log: RunLog | None = None
    run_log_option: str = ""
    width: int = 0
    loads: bool = True
    """Whether the work changes targets; a dry run does not."""

    def attempt(self, spec: PipelineSpec) -> Result | Failed:
        """Run one pipeline; report a failure at once and return it as `Failed`."""
        progress = progress_for(spec.name, self.output)
        try:
            with progress, talk_only():
                result = self.work(spec, progress)
        except KeyboardInterrupt:
            raise failure.Interrupted(interrupted(spec.name, progress.step, loads=self.loads)) from None
        except Exception as error:
            return self._failed(spec, error, progress)
        self._tell(result, spec)
        return result

    def skipped(self, item: Skipped) -> None:
        """Print that a pipeline was skipped, and why."""
        self.output.talk(f"  {item.pipeline.ljust(self.width)}  skipped: {item.reason}")

    def _tell(self, result: Result, spec: PipelineSpec) -> None:
        if not self.output.json:
            for line in report.lines(result, spec, width=self.width, verbose=self.output.verbose):
                self.output.data(line)

    def _failed(self, spec: PipelineSpec, error: Exception, progress: Progress) -> Failed:
        partly = loaded_beside(error)
        if partly is not None:
            self._tell(partly, spec)
        step = str(error.facts.get("step", "")) if isinstance(error, FlowError) else ""
        run_id = self._run_id(spec, error)
        about = failure.Circumstances(
            subject=spec.name,
            step="" if partly is not None else doing(step or progress.step),
            aftermath=aftermath(error, spec, run_id=run_id, loads=self.loads),
            next_command=next_command(error, spec, self.module, run_id=run_id, run_log_option=self.run_log_option),
        )
        if not self.output.json:
            failure.show(error, self.output, about)
        return Failed(spec.name, error, run_id)

    def _run_id(self, spec: PipelineSpec, error: Exception) -> str:
        """Return the failed run's id, from the error or from its record; empty if unknown."""
        if isinstance(error, FlowError) and error.facts.get("run_id"):
            return str(error.facts["run_id"])
        if self.run_log is None or not self.loads or (isinstance(error, FlowError) and error.exit_code == 6):
            return ""
        try:
            newest, _ = self.run_log.list_runs(pipeline=spec.name, status="failed", limit=1)
        except FlowError:
            return ""
        return newest[0].run_id if newest else ""
