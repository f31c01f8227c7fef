"""Execution of one pipeline for a command: progress during the run, a report at its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.cli.loading.module import LoadedModule, stdout_to_stderr
from ematix_flow.cli.render import failure, report
from ematix_flow.cli.render.advice import interrupted, state_after_failure, suggested_command
from ematix_flow.cli.render.output import Output
from ematix_flow.cli.render.progress import Progress, progress_for
from ematix_flow.cli.render.step_labels import step_label
from ematix_flow.cli.running.outcome import FailedPipeline, SkippedPipeline, loaded_targets
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.foundation.errors import FlowError
from ematix_flow.run_log.protocol import RunLog

if TYPE_CHECKING:
    from ematix_flow.engine.batch.result import ProgressEvent, Result

Work = Callable[[PipelineSpec, Callable[["ProgressEvent"], None]], "Result"]


@dataclass(frozen=True)
class Runner:
    """Runs the pipelines of a command and reports their results."""

    work: Work
    output: Output
    module: LoadedModule
    run_log: RunLog | None = None
    run_log_option: str = ""
    width: int = 0
    loads: bool = True
    """Whether the work changes targets; a dry run does not."""

    def attempt(self, spec: PipelineSpec) -> Result | FailedPipeline:
        """Run one pipeline; report a failure at once and return it as `FailedPipeline`."""
        progress = progress_for(spec.name, self.output)
        try:
            with progress, stdout_to_stderr():
                result = self.work(spec, progress)
        except KeyboardInterrupt:
            raise failure.Interrupted(interrupted(spec.name, progress.step, loads=self.loads)) from None
        except Exception as error:
            return self._failed(spec, error, progress)
        self._print_result(result, spec)
        return result

    def skipped(self, item: SkippedPipeline) -> None:
        """Print that a pipeline was skipped, and why."""
        self.output.info(f"  {item.pipeline.ljust(self.width)}  skipped: {item.reason}")

    def _print_result(self, result: Result, spec: PipelineSpec) -> None:
        if not self.output.json:
            for line in report.report_lines(result, spec, width=self.width, verbose=self.output.verbose):
                self.output.data(line)

    def _failed(self, spec: PipelineSpec, error: Exception, progress: Progress) -> FailedPipeline:
        partly = loaded_targets(error)
        if partly is not None:
            self._print_result(partly, spec)
        step = str(error.facts.get("step", "")) if isinstance(error, FlowError) else ""
        run_id = self._run_id(spec, error)
        about = failure.FailureContext(
            subject=spec.name,
            step="" if partly is not None else step_label(step or progress.step),
            aftermath=state_after_failure(error, spec, run_id=run_id, loads=self.loads),
            next_command=suggested_command(error, spec, self.module, run_id=run_id, run_log_option=self.run_log_option),
        )
        if not self.output.json:
            failure.report_failure(error, self.output, about)
        return FailedPipeline(spec.name, error, run_id)

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
