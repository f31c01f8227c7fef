"""`flow run`: run pipelines now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ematix_flow.cli import module as modules
from ematix_flow.cli import report
from ematix_flow.cli.choose import chosen
from ematix_flow.cli.flags import (
    accept_deletes_option,
    force_path_option,
    module_option,
    observing_options,
    run_log_options,
)
from ematix_flow.cli.history import RunLogChoice
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.outcome import Outcome, walk
from ematix_flow.cli.output import Output
from ematix_flow.cli.runner import Runner
from ematix_flow.cli.watchers import Watchers, WatchWishes
from ematix_flow.declare.pipeline import PipelineSpec

if TYPE_CHECKING:
    from ematix_flow.engine.result import Listener, Result


@click.command("run", cls=FlowCommand)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "everything", is_flag=True, help="every pipeline of the module, in order of dependence")
@module_option
@accept_deletes_option
@force_path_option
@observing_options
@run_log_options
@click.pass_obj
def command(output: Output, names: tuple[str, ...], everything: bool, module: str | None, accept_deletes: int | None,
            force_path: str | None, wishes: WatchWishes, run_log_choice: RunLogChoice) -> int:  # fmt: skip
    """Run pipelines now.

    With several names, or --all, pipelines run in the order of their depends_on. After a failure, those that do not
    depend on it go on.
    """
    loaded = modules.load(module)
    specs = chosen(names, everything=everything)
    from ematix_flow.engine import batch, context, session

    context.expect(specs)

    run_log = run_log_choice.for_writing(output)
    watchers = Watchers(wishes, output, run_log, run_log_choice.option)
    overrides = {"force_path": force_path} if force_path else {}

    def work(spec: PipelineSpec, listener: Listener) -> Result:
        return watchers.run(
            spec,
            listener,
            lambda heard, run_id: batch.run(
                spec,
                overrides=overrides,
                run_log=run_log,
                accept_deletes=accept_deletes,
                listener=heard,
                run_id=run_id,
            ),
        )

    runner = Runner(
        work,
        output=output,
        module=loaded,
        run_log=run_log,
        run_log_option=run_log_choice.option,
        width=report.widest([spec.name for spec in specs]),
    )
    try:
        outcome = walk(specs, attempt=runner.attempt, skip=runner.skipped)
    finally:
        watchers.close()
        if run_log is not None:
            run_log.close()
    history = f"flow runs list{run_log_choice.option}" if run_log is not None else ""
    _conclude(outcome, output, engine_seconds=session.start_seconds(), history=history)
    return outcome.exit_code


def _conclude(outcome: Outcome, output: Output, *, engine_seconds: float | None, history: str) -> None:
    if output.json:
        output.document(outcome.to_dict())
        return
    told = report.summary(
        succeeded=len(outcome.results),
        failed=len(outcome.failed),
        skipped=len(outcome.skipped),
        engine_seconds=engine_seconds,
    )
    output.talk(f"{told} · history: {history}" if history else told)
