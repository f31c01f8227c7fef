"""The command `flow runs compare`: what changed from one run to another."""

from __future__ import annotations

from contextlib import closing

import click

from ematix_flow.cli.flags import run_log_options
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.loading.run_log_choice import RunLogOptions
from ematix_flow.cli.render.advice import short_run_id
from ematix_flow.cli.render.comparison import RunComparison
from ematix_flow.cli.render.output import Output
from ematix_flow.foundation.errors import UnknownName
from ematix_flow.run_log.protocol import RunLog
from ematix_flow.run_log.records import RunRecord

_AT_ONCE = 50


@click.command("compare", cls=FlowCommand)
@click.argument("first", metavar="RUN")
@click.argument("second", metavar="[RUN]", required=False)
@run_log_options
@click.pass_obj
def command(output: Output, first: str, second: str | None, run_log_choice: RunLogOptions) -> None:
    """Show what changed from one run to another: time by step, rows, bytes, processor, lane, engine, settings.

    A prefix of an id is enough. One run alone is compared with the last successful run of its pipeline before it.
    """
    with closing(run_log_choice.for_reading()) as run_log:
        first_run = run_of(run_log, first, run_log_choice)
        if second is None:
            comparison = RunComparison(_successful_before(run_log, first_run), first_run)
        else:
            comparison = RunComparison(first_run, run_of(run_log, second, run_log_choice))
    if output.json:
        output.document(comparison.to_dict())
        return
    output.table(
        comparison.rows(),
        header=("", short_run_id(comparison.before.run_id), short_run_id(comparison.after.run_id), "CHANGE"),
    )
    same = comparison.unchanged()
    if same:
        output.data(f"the same: {', '.join(same)}")
    output.data(comparison.summary())


def run_of(run_log: RunLog, run: str, choice: RunLogOptions) -> RunRecord:
    """Return the run of an id or of a prefix of it; raise UnknownName if there is none."""
    record = run_log.get_run(run)
    if record is None:
        raise UnknownName(f"no run is called {run!r} in {choice.display()}", hint="see them all: flow runs list")
    return record


def _successful_before(run_log: RunLog, run: RunRecord) -> RunRecord:
    offset = 0
    while True:
        page, total = run_log.list_runs(pipeline=run.pipeline, status="succeeded", limit=_AT_ONCE, offset=offset)
        for record in page:
            if record.started_at < run.started_at:
                return record
        offset += _AT_ONCE
        if offset >= total:
            raise UnknownName(
                f"{run.pipeline} has no successful run before {short_run_id(run.run_id)}",
                hint=f"name another run: flow runs compare RUN {short_run_id(run.run_id)}",
            )
