"""The command `flow run`: runs pipelines now."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.cli.flags import (
    accept_deletes_option,
    force_path_option,
    module_option,
    observing_options,
    run_log_options,
)
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.loading import module as modules
from ematix_flow.cli.loading.run_log_choice import RunLogOptions
from ematix_flow.cli.render import report
from ematix_flow.cli.render.output import Output
from ematix_flow.cli.running.observers import CommandObservers, ObserverFlags
from ematix_flow.cli.running.outcome import CommandOutcome
from ematix_flow.cli.running.requested_run import execute_requested_run
from ematix_flow.cli.running.runner import RunReporter
from ematix_flow.cli.running.worker import WorkerOptions, cancelled_by_sigterm, worker_options
from ematix_flow.config import files
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.foundation.errors import FlowError

if TYPE_CHECKING:
    from ematix_flow.engine.batch.result import Listener, Result
    from ematix_flow.run_log.protocol import RunLog


@click.command("run", cls=FlowCommand)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "everything", is_flag=True, help="every pipeline of the module, dependencies first")
@module_option
@accept_deletes_option
@force_path_option
@worker_options
@observing_options
@run_log_options
@click.pass_obj
@files.reading_once()
def command(output: Output, names: tuple[str, ...], everything: bool, module: str | None, accept_deletes: int | None,
            force_path: str | None, worker: WorkerOptions, flags: ObserverFlags, run_log_choice: RunLogOptions) -> int:  # fmt: skip
    """Run pipelines now.

    With several names, or --all, pipelines run in the order of their depends_on. After a failure, those that do not
    depend on it still run.
    """
    if worker.run_id is not None:
        _refuse_changes(accept_deletes=accept_deletes, force_path=force_path)
    loaded = modules.load_module(module)
    specs = modules.chosen_pipelines(names, everything=everything)
    from ematix_flow.engine.batch import context
    from ematix_flow.engine.session import session

    context.announce_pipelines(specs)
    outcome, width = CommandOutcome(), report.widest_name([spec.name for spec in specs])
    options = {"overrides": {"force_path": force_path} if force_path else {}, "accept_deletes": accept_deletes}
    with (
        run_log_choice.writing(output) as run_log,
        closing(CommandObservers(flags, output, run_log, run_log_choice.option)) as watchers,
    ):
        reporter = RunReporter(output, loaded, outcome, run_log, run_log_choice.option, width)
        requested = worker.requested(specs, run_log, run_log_choice) if worker.run_id is not None else None
        with cancelled_by_sigterm():
            for spec in outcome.runnable(specs, reporter.skipped):
                with reporter.reporting(spec) as run:
                    run.result = (
                        execute_requested_run(*requested, watchers, listener=run.listener, terms=worker.terms)
                        if requested is not None
                        else _new_run(spec, run.listener, watchers, run_log, terms=worker.terms, **options)
                    )
    history = f"flow runs list{run_log_choice.option}" if run_log is not None else ""
    _report(outcome, output, engine_seconds=session.session_start_seconds(), history=history)
    return outcome.exit_code


def _refuse_changes(**options: object) -> None:
    """Raise UsageError for options that change a run: a requested run is executed as it was requested."""
    for name, value in options.items():
        if value is not None:
            raise click.UsageError(f"--{name.replace('_', '-')} does not go with --run-id")


def _new_run(
    spec: PipelineSpec, listener: Listener, watchers: CommandObservers, run_log: RunLog | None, **options: Any
) -> Result:
    """Run a pipeline now, and forget its failed attempts, which the user has handled by running it."""
    from ematix_flow.engine.batch import pipeline_run

    with watchers.observing(spec, listener) as run:
        result = run.ended(pipeline_run.run(spec, run_log=run_log, listener=run.listener, run_id=run.run_id, **options))
    if run_log is not None:
        with suppress(FlowError):  # the load is done: a failure to update its history must not fail the run
            run_log.clear_attempt_state(spec.name)
    return result


def _report(outcome: CommandOutcome, output: Output, *, engine_seconds: float | None, history: str) -> None:
    if output.json:
        alone = outcome.results[0].to_dict() if len(outcome.results) == 1 and not outcome.failed else {}
        output.document({**alone, **outcome.to_dict()})
        return
    session = report.session_of(outcome.results)
    summary = report.summary(**outcome.counts, engine_seconds=engine_seconds, session=session)
    output.info(f"{summary} · history: {history}" if history else summary)
