"""The report of a pipeline's run in a command: progress during the run, the result or the failure at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.cli.loading.module import LoadedModule, stdout_to_stderr
from ematix_flow.cli.render import failure, report
from ematix_flow.cli.render.advice import interrupted, state_after_failure, suggested_command
from ematix_flow.cli.render.output import Output
from ematix_flow.cli.render.progress import Progress, progress_for
from ematix_flow.cli.render.step_labels import step_label
from ematix_flow.cli.running.outcome import CommandOutcome, FailedPipeline, SkippedPipeline, loaded_targets
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.foundation.errors import FlowError
from ematix_flow.run_log.protocol import RunLog

if TYPE_CHECKING:
    from ematix_flow.engine.batch.result import Result


@dataclass
class ReportedRun:
    """One run: the listener for its progress, and its result, which is to be set."""

    listener: Progress
    result: Result | None = None


@dataclass(frozen=True)
class RunReporter:
    """Reports the runs of a command, and collects their outcome."""

    output: Output
    module: LoadedModule
    outcome: CommandOutcome
    run_log: RunLog | None = None
    run_log_option: str = ""
    width: int = 0
    loads: bool = True
    """Whether the work changes targets; a dry run does not."""

    @contextmanager
    def reporting(self, spec: PipelineSpec) -> Iterator[ReportedRun]:
        """Show the progress of the block's run, then its result or its failure, which ends here."""
        progress = progress_for(spec.name, self.output)
        run = ReportedRun(progress)
        try:
            with progress, stdout_to_stderr():
                yield run
        except KeyboardInterrupt:
            raise failure.Interrupted(interrupted(spec.name, progress.step, loads=self.loads)) from None
        except Exception as error:
            self.outcome.failed.append(self._failed(spec, error, progress))
            return
        if run.result is not None:
            self.outcome.results.append(run.result)
            self._print_result(run.result, spec)

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
