"""Who leads the schedulers of one module: the holder of one claim in the run log."""

from __future__ import annotations

from ematix_flow.runlog.protocol import RunLog
from ematix_flow.runlog.worker import this_worker


def leadership(group: str) -> str:
    """The name of the claim; modules that share a run log have a leader each."""
    return f"_scheduler_singleton:{group}" if group else "_scheduler_singleton"


def leader_of(run_log: RunLog, group: str) -> str | None:
    """The scheduler that leads now; None when nobody does, which is found out by asking for it and giving it back."""
    claim = run_log.claim(leadership(group), this_worker(), 5)
    if claim.token is None:
        return claim.holder
    run_log.release(claim.token)
    return None
