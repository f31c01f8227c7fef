"""A requested run: it is claimed once, records its request, and may begin at a later step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.message import Message
from ematix_flow.foundation.errors import LeaseHeld, PlanError
from ematix_flow.run_log.schedule import Action
from ematix_flow.run_log.worker import this_worker

if TYPE_CHECKING:
    from ematix_flow.declare.pipeline import PipelineSpec
    from ematix_flow.run_log.protocol import RunLog
    from ematix_flow.run_log.records import RunRecord

_TRANSFORM = re.compile(r"transform\[(\d+)\]")
_OF_WORKER = ("worker",)
_MESSAGE = "message"


class AlreadyTaken(LeaseHeld):
    """Raised when another process has claimed the run, or it was cancelled."""


@dataclass(frozen=True)
class RunOrigin:
    """The origin of a run: its request, the run it repeats, and its triggering message."""

    record_extras: Mapping[str, Any] = field(default_factory=dict)
    """The extras of its record: the slot, the requester, the run it repeats."""
    parent: str = ""
    """The run whose load precedes the transforms, if the run begins with a transform."""
    first_transform: int | None = None
    message: Message | None = None
    """The message that triggered the run."""


def transform_number(step: object) -> int | None:
    """Return the index of the transform in the name of a step; None for a step of the load."""
    match = _TRANSFORM.match(str(step))
    return int(match[1]) if match else None


def origin_of(requested: RunRecord | None, spec: PipelineSpec, run_log: RunLog | None = None) -> RunOrigin:
    """Return the origin of a requested run; a failed load restarts from its beginning, because its stage is gone.

    A run that repeats a message-triggered run has the same message.
    """
    if requested is None:
        return RunOrigin()
    extras = {name: value for name, value in requested.extras.items() if name not in _OF_WORKER}
    repeated = Action.of(requested).run_id if _MESSAGE not in extras else None
    prior = run_log.get_run(repeated) if run_log is not None and repeated else None
    if prior is not None and _MESSAGE in prior.extras:
        extras[_MESSAGE] = prior.extras[_MESSAGE]
    step = Action.of(requested).from_step
    number = transform_number(step)
    if number is None:
        sent = extras.get(_MESSAGE)
        return RunOrigin(extras, message=Message.from_dict(sent) if isinstance(sent, Mapping) else None)
    if number >= len(spec.transforms_post):
        raise PlanError(
            f"{spec.name} has no step {step}: it has {len(spec.transforms_post)} transforms now",
            where=spec.where,
            hint="restart it from its beginning: leave out --from-step",
        )
    return RunOrigin(extras, Action.of(requested).run_id or requested.run_id, number)


def claim_requested_run(run_log: RunLog | None, requested: RunRecord | None) -> None:
    """Claim the requested run for this process; raise AlreadyTaken if another process has it or it was cancelled."""
    if run_log is None or requested is None or run_log.take_action(requested.run_id, this_worker()):
        return
    raise AlreadyTaken(
        f"run {requested.run_id[:8]} of {requested.pipeline} is executed by another worker, or was cancelled",
        hint=f"look: flow runs show {requested.run_id[:8]}",
    )
