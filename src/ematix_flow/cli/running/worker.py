"""Options that make `flow run` a scheduler's worker: the run to take, its lease, and SIGTERM as cancellation."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ematix_flow.cli.flags import with_options
from ematix_flow.cli.loading.run_log_choice import RunLogOptions
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.foundation.errors import ConnectionFailed, RunCancelled

if TYPE_CHECKING:
    from ematix_flow.run_log.lease import LeaseTerms
    from ematix_flow.run_log.protocol import RunLog
    from ematix_flow.run_log.records import RunRecord

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True)
class WorkerOptions:
    """The run and the lease settings that a scheduler passes to its worker."""

    run_id: str | None = None
    terms: LeaseTerms | None = None

    def requested(
        self, specs: Sequence[PipelineSpec], run_log: RunLog | None, choice: RunLogOptions
    ) -> tuple[RunRecord, RunLog]:
        """Return the requested run and its run log; raise UsageError or ConnectionFailed if there is none."""
        from ematix_flow.scheduler.requested_runs import requested_run

        if len(specs) != 1:
            raise click.UsageError("--run-id is one run of one pipeline")
        if run_log is None:
            raise ConnectionFailed(
                f"run {self.run_id} cannot be taken: {choice.display()} does not answer", hint="see the warning above"
            )
        return requested_run(run_log, str(self.run_id), specs[0]), run_log


def worker_options(function: _F) -> _F:
    """Add the options that schedulers use; the command receives one `worker`."""

    @functools.wraps(function)
    def wrapped(*args: Any, run_id: str | None, claim_token: str | None, lease_seconds: float,
                heartbeat_interval: float, **kwargs: Any) -> Any:  # fmt: skip
        from ematix_flow.run_log.lease import LeaseTerms

        terms = LeaseTerms(lease_seconds, heartbeat_interval, claim_token)
        return function(*args, worker=WorkerOptions(run_id, terms), **kwargs)

    return with_options(  # type: ignore[no-any-return]
        wrapped,
        click.option("--run-id", metavar="RUN", help="execute this requested run (for schedulers)"),
        click.option("--claim-token", metavar="TOKEN", help="the token of a lease that is already held (for schedulers)"),
        click.option("--lease-seconds", type=click.FloatRange(min=1), default=120.0, show_default=True,
                     metavar="SECONDS", help="how long the lease is valid after its last renewal"),
        click.option("--heartbeat-interval", type=click.FloatRange(min=0.1), default=40.0, show_default=True,
                     metavar="SECONDS", help="how often the lease is renewed"),
    )  # fmt: skip


@contextmanager
def cancelled_by_sigterm() -> Iterator[None]:
    """Make SIGTERM raise RunCancelled in the block, so that the run is rolled back and recorded; main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: Any) -> None:
        raise RunCancelled("stopped by SIGTERM; nothing more was loaded", hint="run it again: it goes on where it was")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
