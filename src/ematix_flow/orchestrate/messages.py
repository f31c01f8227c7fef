"""Messages that fire workflows: a name in the run log, and when it was last sent."""

from __future__ import annotations

from ematix_flow.declare.workflow import workflows
from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.foundation.errors import UnknownName
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.runlog.protocol import RunLog


def message(name: str) -> str:
    """What a message is called among everything that can succeed."""
    return f"message:{name}"


def listeners(name: str) -> list[str]:
    """The workflows that wait for this message; an UnknownName when none does."""
    known = {flow.on_message for flow in workflows().values() if isinstance(flow.on_message, str)}
    if name not in known:
        raise UnknownName(f"no workflow has on_message={name!r}", hint=did_you_mean(name, known) if known else None)
    return [flow.name for flow in workflows().values() if flow.on_message == name]


def send(run_log: RunLog, name: str) -> None:
    """Fire every workflow that waits for it, at the next look; messages that come before that count as one."""
    run_log.record_run(message(name), clock_now(), True)
