"""What a failed run left behind, and the next command to type."""

from __future__ import annotations

from ematix_flow.cli.module import Loaded
from ematix_flow.cli.steps import doing
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.foundation.errors import (
    Brake,
    ConfigError,
    ConnectionFailed,
    DataError,
    DeclarationError,
    FlowError,
    LeaseHeld,
    PartialFailure,
    PlanError,
    UnknownConnection,
)

# From here on the publish may have happened, and only the target knows.
_AFTER_STAGE = ("publish", "settle")


def aftermath(error: Exception, spec: PipelineSpec, *, run_id: str, loads: bool) -> tuple[str, ...]:
    """What is where now: loaded or not, which run, which attempt."""
    if not loads:
        return ("nothing was changed",)
    parts = [_loaded(error)]
    if run_id:
        parts.append(f"run {run_id}")
    if not isinstance(error, LeaseHeld):
        retryable = isinstance(error, FlowError) and error.retryable
        reason = "" if retryable else " (not retried: it will not heal by itself)"
        parts.append(f"attempt 1 of {spec.retry.max_attempts}{reason}")
    return tuple(parts)


def next_command(error: Exception, spec: PipelineSpec, module: Loaded, *, run_id: str) -> str:
    """What to type now."""
    tail = f"{module.option}{spec.name}"
    if isinstance(error, Brake):
        wanted = error.facts.get("deletes", error.facts.get("accept_deletes"))
        return f"flow run {tail} --accept-deletes {wanted if wanted is not None else 'N'}"
    if isinstance(error, LeaseHeld):
        return f"flow runs list --pipeline {spec.name}"
    if isinstance(error, UnknownConnection):
        return "flow connections list"
    if isinstance(error, (ConnectionFailed, ConfigError)):
        name = error.facts.get("connection")
        return f"flow connections check {name}" if name else "flow doctor"
    if isinstance(error, DataError):
        return f"flow preview {tail} --rows 5"
    if isinstance(error, PartialFailure) or (isinstance(error, FlowError) and error.retryable):
        return f"flow run {tail}"
    if isinstance(error, (PlanError, DeclarationError)):
        return f"flow validate {tail}"
    return f"flow runs show {run_id}" if run_id else f"flow run {tail} --verbose"


def interrupted(name: str, step: str, *, loads: bool) -> str:
    """What an interrupt left behind."""
    when = f"{name} was interrupted" + (f" while {doing(step)}" if step else "")
    if loads and step in _AFTER_STAGE:
        return f"{when}: if it was already published, the next run sees that and loads nothing twice"
    if loads and step.startswith("transform"):
        return f"{when}: the load itself is there"
    return f"{when}: nothing was loaded"


def _loaded(error: Exception) -> str:
    if isinstance(error, PartialFailure):
        return "the other targets are loaded"
    if isinstance(error, FlowError) and str(error.facts.get("step", "")).startswith("transform"):
        return "the load itself is there"
    return "nothing was loaded"
