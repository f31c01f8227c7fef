"""The command `flow logs`: the captured output of a run."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

import click

from ematix_flow.cli.flags import run_log_options
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.loading.run_log_choice import RunLogOptions
from ematix_flow.cli.render.output import Output
from ematix_flow.foundation.errors import UnknownName
from ematix_flow.observe.logs import CAPTURE_VARIABLE, log_file, read_run_logs
from ematix_flow.run_log.records import FINISHED
from ematix_flow.run_log.worker import DIED, shown_status

if TYPE_CHECKING:
    from ematix_flow.run_log.protocol import RunLog

_LOOK = 0.5


@click.command("logs", cls=FlowCommand)
@click.argument("run", metavar="RUN")
@click.option("-f", "--follow", is_flag=True, help="print new lines until the run has ended")
@click.option("--tail", type=click.IntRange(min=1), metavar="N", help="print only the last N lines")
@run_log_options
@click.pass_obj
def command(output: Output, run: str, follow: bool, tail: int | None, run_log_choice: RunLogOptions) -> int:
    """Show what a run printed and logged, without secrets; a prefix of its id is enough.

    Output is captured for runs of `flow run-due` and of schedulers, and for `flow run` with EMATIX_FLOW_CAPTURE_LOGS=1;
    not with --parallel or inprocess://, where runs share one output.
    """
    with closing(run_log_choice.for_reading()) as run_log:
        record = run_log.get_run(run)
        run_id = record.run_id if record is not None else run
        text = read_run_logs(run_id)
        if text is None and not (follow and record is not None and record.status not in FINISHED):
            raise UnknownName(
                f"nothing was kept of what run {run} printed on this machine",
                hint=f"set {CAPTURE_VARIABLE}=1 for `flow run`, or look where the run's worker is",
            )
        lines = (text or "").splitlines()
        shown = lines[-tail:] if tail else lines
        if output.json:
            output.document({"run_id": run_id, "file": str(log_file(run_id)), "lines": shown})
            return 0
        for line in shown:
            output.data(line)
        if follow:
            _follow(output, run_log, run_id, seen=len(lines))
    return 0


def _follow(output: Output, run_log: RunLog, run_id: str, *, seen: int) -> None:
    while True:
        record = run_log.get_run(run_id)
        has_ended = record is None or record.status in FINISHED or shown_status(record) == DIED
        lines = (read_run_logs(run_id) or "").splitlines()
        for line in lines[seen:]:
            output.data(line)
        seen = max(seen, len(lines))
        if has_ended:
            return
        time.sleep(_LOOK)
