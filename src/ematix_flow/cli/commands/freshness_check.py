"""The command `flow freshness-check`: compares the last success of pipelines with their freshness_sla."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from ematix_flow.cli import module as modules
from ematix_flow.cli.flags import module_option, observing_options, run_log_options
from ematix_flow.cli.history import RunLogChoice
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.moments import local
from ematix_flow.cli.output import Output
from ematix_flow.cli.watchers import WatchWishes

if TYPE_CHECKING:
    from ematix_flow.orchestrate.freshness import FreshnessState
    from ematix_flow.runlog.protocol import RunLog

_HEADER = ("NAME", "STATE", "LAST SUCCESS", "AGE", "ALLOWED")


@click.command("freshness-check", cls=FlowCommand)
@module_option
@observing_options
@run_log_options
@click.pass_obj
def command(output: Output, module: str | None, wishes: WatchWishes, run_log_choice: RunLogChoice) -> int:
    """Compare each pipeline's last success with its freshness_sla; exit 1 when one is late.

    Pipelines without freshness_sla are left out; one that never succeeded is late. Alerters are notified once when a
    pipeline becomes late, and once when it is no longer late.
    """
    loaded = modules.load(module)
    from ematix_flow.orchestrate.freshness import BREACHED, evaluate_all, last_success_in

    run_log = run_log_choice.for_reading()
    try:
        states = evaluate_all(last_success_in(run_log))
    finally:
        run_log.close()
    _tell(states, wishes, output, run_log_choice)
    if output.json:
        output.document([state.to_dict() for state in states])
    elif not states:
        output.talk(f"no pipeline of {loaded.name} has a freshness_sla")
    else:
        output.table([_row(state) for state in states], header=_HEADER)
    return 1 if any(state.state == BREACHED for state in states) else 0


def _tell(states: Sequence[FreshnessState], wishes: WatchWishes, output: Output, choice: RunLogChoice) -> None:
    """Notify alerters and the metrics sink; their failures do not change the result of the command."""
    from ematix_flow.observe.alerts.outages import known_in
    from ematix_flow.observe.alerts.settings import wanted_alerters
    from ematix_flow.observe.metrics.sinks import Sink
    from ematix_flow.observe.settings import Wishes, observers
    from ematix_flow.orchestrate.freshness import outages_ended, tell

    run_log: RunLog | None = None
    known = None
    if states and wanted_alerters(wishes.alerters, warn=lambda _: None):
        run_log = choice.for_writing(output)
    if run_log is not None:
        known = outages_ended(states, run_log, known_in(run_log))
    said = Wishes(wishes.alerters, wishes.metrics, wishes.traces, wishes.lineage)
    watching = observers(said, warn=output.warn, known=known, run_log_option=choice.option)
    try:
        for state in states:
            if isinstance(watching.metrics, Sink) and state.last_success is not None:
                with watching.complaints.isolated("the metrics sink"):
                    watching.metrics.set_last_success(state.pipeline, state.last_success.timestamp())
        if run_log is not None:
            with watching.complaints.isolated("the alerters"):
                tell(states, run_log, watching.alerts)
    finally:
        watching.close()
        if run_log is not None:
            run_log.close()


def _row(state: FreshnessState) -> tuple[str, ...]:
    last = local(state.last_success) if state.last_success else "never"
    age = _span(state.lag_seconds) if state.lag_seconds is not None else "-"
    return state.pipeline, state.state, last, age, _span(state.sla_seconds)


def _span(seconds: int) -> str:
    from ematix_flow.observe.alerts.text import span

    return span(timedelta(seconds=seconds)) or "0 s"
