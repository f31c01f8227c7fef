"""The command `flow freshness-check`: compares the last success of pipelines with their freshness_sla."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from ematix_flow.cli.flags import module_option, observing_options, run_log_options
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.loading import module as modules
from ematix_flow.cli.loading.run_log_choice import RunLogOptions
from ematix_flow.cli.render.output import Output
from ematix_flow.cli.render.units import format_local_time
from ematix_flow.cli.running.observers import ObserverFlags

if TYPE_CHECKING:
    from ematix_flow.run_log.protocol import RunLog
    from ematix_flow.scheduler.freshness import FreshnessState

_HEADER = ("NAME", "STATE", "LAST SUCCESS", "AGE", "ALLOWED")


@click.command("freshness-check", cls=FlowCommand)
@module_option
@observing_options
@run_log_options
@click.pass_obj
def command(output: Output, module: str | None, flags: ObserverFlags, run_log_choice: RunLogOptions) -> int:
    """Compare each pipeline's last success with its freshness_sla; exit 1 when one is late.

    Pipelines without freshness_sla are left out; one that never succeeded is late. Alerters are notified once when a
    pipeline becomes late, and once when it is no longer late.
    """
    loaded = modules.load_module(module)
    from ematix_flow.scheduler.freshness import BREACHED, evaluate_all, last_success_in

    with closing(run_log_choice.for_reading()) as run_log:
        states = evaluate_all(last_success_in(run_log))
    _notify(states, flags, output, run_log_choice)
    rows = [_row(state) for state in states]
    empty = f"no pipeline of {loaded.name} has a freshness_sla"
    output.listing([state.to_dict() for state in states], rows, header=_HEADER, empty=empty)
    return 1 if any(state.state == BREACHED for state in states) else 0


def _notify(states: Sequence[FreshnessState], flags: ObserverFlags, output: Output, choice: RunLogOptions) -> None:
    """Notify alerters and the metrics sink; their failures do not change the result of the command."""
    from ematix_flow.alerters.outages import outages_in_run_log
    from ematix_flow.alerters.settings import requested_alerters
    from ematix_flow.metrics.sinks import Sink
    from ematix_flow.observe.settings import ObserverOptions, requested_observers
    from ematix_flow.scheduler.freshness import ended_outages, notify_lateness

    run_log: RunLog | None = None
    known = None
    if states and requested_alerters(flags.alerters, warn=lambda _: None):
        run_log = choice.for_writing(output)
    if run_log is not None:
        known = ended_outages(states, run_log, outages_in_run_log(run_log))
    options = ObserverOptions(flags.alerters, flags.metrics, flags.traces, flags.lineage)
    observers = requested_observers(options, warn=output.warn, known=known, run_log_option=choice.option)
    with closing(observers), closing(run_log) if run_log is not None else nullcontext():
        for state in states:
            if isinstance(observers.metrics, Sink) and state.last_success is not None:
                with observers.complaints.guard("the metrics sink"):
                    observers.metrics.set_last_success(state.pipeline, state.last_success.timestamp())
        if run_log is not None:
            with observers.complaints.guard("the alerters"):
                notify_lateness(states, run_log, observers.alerts)


def _row(state: FreshnessState) -> tuple[str, ...]:
    last = format_local_time(state.last_success) if state.last_success else "never"
    age = _duration(state.lag_seconds) if state.lag_seconds is not None else "-"
    return state.pipeline, state.state, last, age, _duration(state.sla_seconds)


def _duration(seconds: int) -> str:
    from ematix_flow.alerters.text import format_span

    return format_span(timedelta(seconds=seconds)) or "0 s"
