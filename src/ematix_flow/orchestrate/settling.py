"""How a job stands after one of its runs: healthy, to be tried again, or given up."""

from __future__ import annotations

from datetime import datetime

from ematix_flow.declare.retry import RetryPolicy
from ematix_flow.foundation.errors import FlowError
from ematix_flow.runlog.protocol import RunLog
from ematix_flow.runlog.records import AttemptState


def settle(
    run_log: RunLog, name: str, policy: RetryPolicy, *, attempt: int, error: BaseException | None, at: datetime
) -> AttemptState | None:
    """Remember the outcome of an attempt; None when it went well."""
    if error is None:
        run_log.clear_attempt_state(name)
        return None
    state = AttemptState(attempt, at, gives_up(policy, attempt, error))
    run_log.record_attempt(name, state)
    return state


def gives_up(policy: RetryPolicy, attempt: int, error: BaseException) -> bool:
    """Whether nothing but a new slot or a person brings the job back; a job without a policy never had to give up."""
    heals = not isinstance(error, FlowError) or error.retryable
    return policy.explicit and (attempt >= policy.max_attempts or not heals)
