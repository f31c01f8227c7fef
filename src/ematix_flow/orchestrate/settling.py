"""The state of a job after one of its runs: healthy, to be retried, or given up."""

from __future__ import annotations

from datetime import datetime

from ematix_flow.declare.retry import RetryPolicy
from ematix_flow.foundation.errors import FlowError
from ematix_flow.runlog.protocol import RunLog
from ematix_flow.runlog.records import AttemptState


def settle(
    run_log: RunLog, name: str, policy: RetryPolicy, *, attempt: int, error: BaseException | None, at: datetime
) -> AttemptState | None:
    """Record the outcome of an attempt; return its state, or None after a success."""
    if error is None:
        run_log.clear_attempt_state(name)
        return None
    state = AttemptState(attempt, at, gives_up(policy, attempt, error))
    run_log.record_attempt(name, state)
    return state


def gives_up(policy: RetryPolicy, attempt: int, error: BaseException) -> bool:
    """Return whether only a new slot or a user restarts the job; a job without an explicit policy never gives up."""
    heals = not isinstance(error, FlowError) or error.retryable
    return policy.explicit and (attempt >= policy.max_attempts or not heals)
