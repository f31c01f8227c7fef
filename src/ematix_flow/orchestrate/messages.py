"""Messages that fire workflows: a name in the run log, with the time of its last sending."""

from __future__ import annotations

from ematix_flow.declare.workflow import workflows
from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.foundation.errors import UnknownName
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.runlog.protocol import RunLog


def message(name: str) -> str:
    """Return the name of a message among the names that can succeed."""
    return f"message:{name}"


def listeners(name: str) -> list[str]:
    """Return the workflows that wait for this message; raise an UnknownName if there is none."""
    known = {flow.on_message for flow in workflows().values() if isinstance(flow.on_message, str)}
    if name not in known:
        raise UnknownName(f"no workflow has on_message={name!r}", hint=did_you_mean(name, known) if known else None)
    return [flow.name for flow in workflows().values() if flow.on_message == name]


def send(run_log: RunLog, name: str) -> None:
    """Fire every workflow that waits for the message in the next polling cycle; messages until then count as one."""
    run_log.record_run(message(name), clock_now(), True)
