"""Texts after a failed run: the state that it left behind, and the command to type next."""

from __future__ import annotations

from ematix_flow.cli.loading.module import LoadedModule
from ematix_flow.cli.render.names import name_of
from ematix_flow.cli.render.step_labels import step_label
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

SHORT_ID = 8
_OF_A_STREAM = "-stream-"
# From here on the publish may have happened; only the target has the answer.
_AFTER_STAGE = ("publish", "settle")


def state_after_failure(error: Exception, spec: PipelineSpec, *, run_id: str, loads: bool) -> tuple[str, ...]:
    """Return short texts on the state after a failure: whether rows were loaded, the run id, the attempt."""
    if not loads:
        return ("nothing was changed",)
    parts = [_loaded(error)]
    if run_id:
        parts.append(f"run {short_run_id(run_id)}")
    if not isinstance(error, LeaseHeld):
        retryable = isinstance(error, FlowError) and error.retryable
        reason = "" if retryable else " (not retried: it will not heal by itself)"
        parts.append(f"attempt 1 of {spec.retry.max_attempts}{reason}")
    return tuple(parts)


def suggested_command(
    error: Exception, spec: PipelineSpec, module: LoadedModule, *, run_id: str = "", run_log_option: str = ""
) -> str:
    """Return the command that the user should type next."""
    tail = f"{module.option}{spec.name}"
    if isinstance(error, Brake):
        return f"flow run {tail} --accept-deletes {error.facts.get('planned', 'N')}"
    if isinstance(error, LeaseHeld):
        return f"flow runs list --pipeline {spec.name}{run_log_option}"
    if isinstance(error, UnknownConnection):
        return "flow connections list"
    if isinstance(error, (ConnectionFailed, ConfigError)):
        return f"flow connections check {module.option}{_connections(error, spec)}"
    if isinstance(error, DataError):
        return f"flow preview {tail} --rows 5"
    if isinstance(error, PartialFailure) or (isinstance(error, FlowError) and error.retryable):
        return f"flow run {tail}"
    if isinstance(error, (PlanError, DeclarationError)):
        return f"flow validate {tail}"
    return f"flow runs show {short_run_id(run_id)}{run_log_option}" if run_id else f"flow run {tail} --verbose"


def interrupted(name: str, step: str, *, loads: bool) -> str:
    """Return one sentence on what an interrupted run left behind."""
    when = f"{name} was interrupted" + (f" while {step_label(step)}" if step else "")
    if loads and step in _AFTER_STAGE:
        return f"{when}: if it was already published, the next run sees that and loads nothing twice"
    if loads and step.startswith("transform"):
        return f"{when}: the load itself is there"
    return f"{when}: nothing was loaded"


def short_run_id(run_id: str) -> str:
    """Return the part of a run id that users type: 8 characters, or all of a stream's id, which begins with a name.

    >>> short_run_id("0b6c8a52-9c1d-4f0e-8a35-5f6b0f2f7c11"), short_run_id("orders-stream-20260131T100000-1f2e3d4c")
    ('0b6c8a52', 'orders-stream-20260131T100000-1f2e3d4c')
    """
    return run_id if _OF_A_STREAM in run_id else run_id[:SHORT_ID]


def _connections(error: FlowError, spec: PipelineSpec) -> str:
    """Return the name of the failed connection, or the names of all that the pipeline uses, separated by blanks."""
    if error.facts.get("connection"):
        return str(error.facts["connection"])
    sources = spec.source_connection if isinstance(spec.source_connection, (list, tuple)) else [spec.source_connection]
    named = [*sources, *(load.connection for load in spec.loads)]
    return " ".join(dict.fromkeys(name_of(connection) for connection in named if connection is not None))


def _loaded(error: Exception) -> str:
    if isinstance(error, FlowError) and str(error.facts.get("step", "")).startswith("transform"):
        return "the load itself is there"
    if isinstance(error, PartialFailure):
        return "the other targets are loaded"
    return "nothing was loaded"
