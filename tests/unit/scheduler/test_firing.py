"""What one tick in this process tells of runs that end without a result of their own."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from ematix_flow.declare.retry import RetryPolicy
from ematix_flow.foundation.errors import FlowError, LeaseHeld, LeaseLost, RunCancelled
from ematix_flow.run_log.memory import InMemoryRunLog
from ematix_flow.run_log.records import RunRecord
from ematix_flow.scheduler.due import Job
from ematix_flow.scheduler.firing import RunDueTick, SkippedEvent

NOW = datetime(2026, 11, 16, 3, 0, 10, tzinfo=timezone.utc)


@pytest.mark.parametrize("error", [LeaseHeld, LeaseLost, RunCancelled])
def test_a_run_that_counts_as_no_attempt_is_reported_as_skipped(error: type[FlowError]) -> None:
    job = Job("orders", schedule="0 * * * *", retry=RetryPolicy(max_attempts=1, explicit=True))
    said: list[str] = []

    def work(record: RunRecord) -> None:
        raise error(f"{record.pipeline} stopped")

    result = RunDueTick([job], InMemoryRunLog(), work, now=NOW, interval=60, report=said.append).run()
    assert (result.fired, result.failed) == ([], [])
    assert result.skipped == [SkippedEvent("orders", "orders stopped")]
    assert said[-1] == "skipping: orders: orders stopped"


def test_any_other_error_is_a_failed_attempt() -> None:
    job = Job("orders", schedule="0 * * * *", retry=RetryPolicy(max_attempts=1, explicit=True))

    def work(record: RunRecord) -> None:
        raise ConnectionError("no server answers")

    (failed,) = RunDueTick([job], InMemoryRunLog(), work, now=NOW, interval=60).run().failed
    assert (failed.name, failed.error_type, failed.gave_up) == ("orders", "ConnectionError", True)
