"""The command `flow scheduler`: a process that runs what is due."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.cli.flags import module_option, observing_options, run_log_options
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.loading import module as modules
from ematix_flow.cli.loading.run_log_choice import RunLogOptions
from ematix_flow.cli.render.output import Output
from ematix_flow.cli.running.observers import CommandObservers, ObserverFlags
from ematix_flow.cli.running.requested_run import execute_requested_run
from ematix_flow.declare import registry
from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.foundation.errors import ConfigError, LeaseHeld, RunCancelled
from ematix_flow.run_log.records import RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.executors.protocol import DispatchSpec
    from ematix_flow.run_log.protocol import RunLog
    from ematix_flow.scheduler.scheduler import Scheduler

_HANDED_ON = "EMATIX_FLOW_METRICS_URL"


@click.command("scheduler", cls=FlowCommand)
@click.option("--executor", "executor_url", metavar="URL", default="subprocess://", show_default=True,
              help="the executor of the runs: subprocess://, inprocess://, k8s://<ns>?image=…, lambda://<fn>, "
              "spark-submit://<master>")  # fmt: skip
@click.option("--max-concurrent", type=click.IntRange(min=1), default=lambda: os.cpu_count() or 2, metavar="N",
              help="maximum number of concurrent runs  [default: the cores of this machine]")  # fmt: skip
@click.option("--poll-interval", type=click.FloatRange(min=0), default=10.0, show_default=True, metavar="SECONDS",
              help="time between polling cycles")  # fmt: skip
@click.option("--interval", type=click.FloatRange(min=1), default=60.0, show_default=True, metavar="SECONDS",
              help="how long ago a schedule may have fired and still be due")  # fmt: skip
@click.option("--lease-seconds", type=click.IntRange(min=1), default=300, show_default=True, metavar="SECONDS",
              help="a worker that is silent for longer counts as lost")  # fmt: skip
@click.option("--leader-lease-seconds", type=click.FloatRange(min=1), default=60.0, show_default=True,
              metavar="SECONDS", help="a leader that is silent for longer is replaced")  # fmt: skip
@click.option("--worker-id", metavar="NAME", default="", help="this scheduler's name in the run log")
@click.option("--max-iterations", type=click.IntRange(min=1), metavar="N", help="stop after N polling cycles")
@module_option
@observing_options
@run_log_options
@click.pass_obj
def command(output: Output, /, executor_url: str, module: str | None, flags: ObserverFlags, run_log_choice: RunLogOptions,
            max_iterations: int | None, **value: Any) -> int:  # fmt: skip
    """Run what is due, from a process that keeps running: schedules, triggers, retries, and requested runs.

    Start as many as you like on one run log: one leads, the others wait to take over. SIGTERM passes the lead on; runs
    of inprocess:// are finished first.
    """
    loaded = modules.load_module(module)
    from ematix_flow.declare.workflow import workflows
    from ematix_flow.engine.warm.policy import share_engine_with_children
    from ematix_flow.executors.urls import executor_from_url
    from ematix_flow.run_log.urls import from_url
    from ematix_flow.scheduler.broker_triggers import check_sources
    from ematix_flow.scheduler.jobs import declared_jobs
    from ematix_flow.scheduler.scheduler import Scheduler, SchedulerSettings

    jobs, executor = declared_jobs(), executor_from_url(executor_url)
    check_sources(workflows().values())
    if executor_url.startswith("subprocess"):
        share_engine_with_children()  # every run is a separate process: they share one engine, which ends with this scheduler
    _check(run_log_choice, executor_url)
    run_log = from_url(run_log_choice.address)
    watchers = CommandObservers(flags, output, run_log, run_log_choice.option)
    settings = SchedulerSettings(
        poll_interval=value["poll_interval"],
        lease_seconds=value["lease_seconds"],
        leader_lease_seconds=value["leader_lease_seconds"],
        interval=value["interval"],
        max_workers=value["max_concurrent"],
        worker_id=value["worker_id"],
    )
    specs = _specs(loaded.name, run_log_choice, flags, settings.lease_seconds)
    scheduler = Scheduler(
        jobs,
        run_log,
        executor,
        specs,
        settings=settings,
        group=loaded.name,
        on_event=_SchedulerEvents(output, run_log, watchers),
        every_minute=lambda: watchers.check_freshness(run_log),
    )
    check = getattr(executor, "check", None)
    if check is not None and jobs:  # report an unusable executor at the start, not at the first scheduled run
        check(specs(RunRecord("-", jobs[0].name, "requested", clock_now())))
    if hasattr(executor, "run_with"):
        executor.run_with(_in_this_process(run_log, watchers, output))
    _stop_on_signals(scheduler, output)
    output.info(f"scheduling {len(jobs)} pipelines of {loaded.name} by {executor_url} · {run_log_choice.display()}")
    with closing(run_log), closing(watchers):
        scheduler.run(max_iterations=max_iterations)
    return 0


def _check(choice: RunLogOptions, executor_url: str) -> None:
    if choice.off:
        raise click.UsageError("a scheduler keeps its slots in the run log")
    if choice.address.startswith("memory:") and not executor_url.startswith("inprocess"):
        raise ConfigError("memory:// is gone with this process, and its workers are others", hint="use a file")


def _specs(module: str, choice: RunLogOptions, flags: ObserverFlags,
           lease_seconds: int) -> Callable[[RunRecord], DispatchSpec]:  # fmt: skip
    from ematix_flow.executors.protocol import DispatchSpec

    metrics = os.environ.get(_HANDED_ON) or (flags.metrics if not _has_a_port(flags.metrics) else None)

    def spec_of(record: RunRecord) -> DispatchSpec:
        return DispatchSpec(
            pipeline_name=record.pipeline,
            module=module,
            lease_seconds=lease_seconds,
            run_log_url=choice.address,
            alerter_urls=flags.alerters,
            metrics_url=metrics,
            run_id=record.run_id,
        )

    return spec_of


def _has_a_port(metrics: str | None) -> bool:
    """Return whether metrics are served on a port of this process, which then counts its workers' runs itself."""
    return bool(metrics and metrics.startswith("prometheus"))


class _SchedulerEvents:
    """The callback that reports scheduler events to the user, the metrics and the alerters."""

    def __init__(self, output: Output, run_log: RunLog, watchers: CommandObservers) -> None:
        self._output = output
        self._run_log = run_log
        self._watchers = watchers

    def __call__(self, kind: str, name: str, text: str) -> None:
        record = None
        if kind in ("ended", "lost", "gave_up"):
            record = self._run_log.get_run(text)
            text = f"run {text[:8]} {record.status if record else ''}".rstrip()
            if record is not None and record.error_summary:
                text += f": {record.error_summary.splitlines()[0]}"
        self._watchers.on_scheduler_event(kind, name, record)
        moment = clock_now()
        if self._output.json:
            self._output.data(json.dumps({"at": moment.isoformat(), "event": kind, "pipeline": name, "text": text}))
        else:
            self._output.info(f"{moment.astimezone():%H:%M:%S}  {kind:<15} {name}  {text}")


def _in_this_process(run_log: RunLog, watchers: CommandObservers, output: Output) -> Any:
    from ematix_flow.engine.batch import context

    context.announce_pipelines([declared.spec for declared in registry.pipelines().values()])

    def carried(spec: DispatchSpec, is_stopped: Callable[[], bool]) -> None:
        def listener(_: object) -> None:
            if is_stopped():
                raise RunCancelled("the run was cancelled; nothing more was loaded")

        record = run_log.get_run(spec.run_id)
        if record is None:
            return
        # A cancel must not end the process, which this run shares with others.
        record = replace(record, extras={**record.extras, "inprocess": True})
        try:
            execute_requested_run(record, run_log, watchers, listener=listener, keeps_output=False)
        except (LeaseHeld, RunCancelled):
            return
        except Exception as error:
            output.info(f"failed: {spec.pipeline_name}: {getattr(error, 'what', error)}")

    return carried


def _stop_on_signals(scheduler: Scheduler, output: Output) -> None:
    """Stop the scheduler in order on the first signal; the second one ends the process."""

    def stop(number: int, _frame: object) -> None:
        output.info("stopping: no run is fired any more")
        scheduler.stop()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(ValueError):  # not the main thread
            signal.signal(number, stop)
