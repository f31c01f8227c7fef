"""Evaluation of triggers: whether and when a tree of names is satisfied."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from ematix_flow.declare.workflow import ALL, TriggerOp


def satisfied_at(
    trigger: TriggerOp | str, succeeded: Mapping[str, datetime], *, since: datetime | None
) -> datetime | None:
    """Return the moment at which successes later than `since` satisfied the trigger; None if they do not yet.

    For all of several names the last success decides, for any of them the first one.
    """
    if isinstance(trigger, str):
        at = succeeded.get(trigger)
        return at if at is not None and (since is None or at > since) else None
    found = [satisfied_at(member, succeeded, since=since) for member in trigger.members]
    there = [at for at in found if at is not None]
    if trigger.kind == ALL:
        return max(there) if len(there) == len(found) else None
    return min(there) if there else None
