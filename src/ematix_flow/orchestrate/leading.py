"""Leadership of the schedulers of one module: a claim in the run log."""

from __future__ import annotations

from ematix_flow.runlog.protocol import RunLog
from ematix_flow.runlog.worker import this_worker


def leadership(group: str) -> str:
    """Return the name of the leader claim; modules that share a run log have separate leaders."""
    return f"_scheduler_singleton:{group}" if group else "_scheduler_singleton"


def leader_of(run_log: RunLog, group: str) -> str | None:
    """Return the worker id of the leading scheduler, or None; tests it by claiming the leadership and releasing it."""
    claim = run_log.claim(leadership(group), this_worker(), 5)
    if claim.token is None:
        return claim.holder
    run_log.release(claim.token)
    return None
