"""Triggers of workflows: trees of names, and messages that are sent by name."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from ematix_flow.declare.workflow import ALL, TriggerOp, workflows
from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.foundation.errors import UnknownName
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.run_log.protocol import RunLog


def satisfied_at(
    trigger: TriggerOp | str, succeeded: Mapping[str, datetime], *, since: datetime | None
) -> datetime | None:
    """Return the moment at which successes later than `since` satisfied the trigger; None if they do not yet.

    For all of several names the last success decides, for any of them the first one.
    """
    if isinstance(trigger, str):
        at = succeeded.get(trigger)
        return at if at is not None and (since is None or at > since) else None
    moments = [satisfied_at(member, succeeded, since=since) for member in trigger.members]
    satisfied = [at for at in moments if at is not None]
    if trigger.kind == ALL:
        return max(satisfied) if len(satisfied) == len(moments) else None
    return min(satisfied) if satisfied else None


def message_name(name: str) -> str:
    """Return the name of a message among the names that can succeed."""
    return f"message:{name}"


def workflows_for_message(name: str) -> list[str]:
    """Return the workflows that wait for this message; raise an UnknownName if there is none."""
    known = {flow.on_message for flow in workflows().values() if isinstance(flow.on_message, str)}
    if name not in known:
        raise UnknownName(f"no workflow has on_message={name!r}", hint=did_you_mean(name, known) if known else None)
    return [flow.name for flow in workflows().values() if flow.on_message == name]


def send_message(run_log: RunLog, name: str) -> None:
    """Fire every workflow that waits for the message in the next polling cycle; messages until then count as one."""
    run_log.record_run(message_name(name), clock_now(), True)
