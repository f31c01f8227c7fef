"""Post-load transforms: SQL, callables and references, each in its own transaction and recorded in the history."""

from __future__ import annotations

import inspect
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ematix_flow.dataplane.spark_session import start_session_with
from ematix_flow.declare import registry
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.registry import TransformRef, TransformSpec
from ematix_flow.engine.batch.context import RunContext, TargetContext
from ematix_flow.engine.batch.plan import Transform
from ematix_flow.engine.batch.preview_plan import TransformPlan
from ematix_flow.engine.batch.result import ProgressEvent, TargetResult
from ematix_flow.engine.batch.source import await_result
from ematix_flow.engine.connections.connection import LiveConnection, open_connection
from ematix_flow.engine.session.session import spark_session
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import FlowError, UserError
from ematix_flow.foundation.location import Location
from ematix_flow.foundation.redact import mask


@dataclass(frozen=True)
class ParentContext:
    """The load that precedes a transform."""

    pipeline_name: str
    run_id: str
    rows_inserted: int
    rows_updated: int
    rows_unchanged: int


def run_transforms(
    context: RunContext, steps: Sequence[Transform], parent: TargetResult, run_named: Callable[[str], Any]
) -> list[dict[str, Any]]:
    """Run the transforms and return their outcomes; a failure raises unless the pipeline continues. The load stays."""
    outcomes: list[dict[str, Any]] = []
    spec = context.spec
    target = context.loads[0]
    about = ParentContext(spec.name, parent.run_id, parent.rows_inserted, parent.rows_updated, parent.rows_unchanged)
    for item in steps:
        step = f"transform[{item.number}]:{transform_label(item.transform)}"
        context.clock(ProgressEvent(spec.name, "transform", step))
        started = now()
        error: FlowError | None = None
        metrics: Any = None
        try:
            metrics = _run_one(target, item.transform, about, run_named)
        except Exception as exc:
            error = exc if isinstance(exc, FlowError) else TransformRaised(step, exc)
            error.at(spec.where)
            # The error of a pipeline named here has that pipeline's own step and run id, which its own record keeps.
            error.facts["step"] = step
            error.facts.pop("run_id", None)
        _record(target, about, step, error, metrics, started)
        outcomes.append(
            {"step": step, "status": "failed" if error else "success", "error": mask(error.what) if error else None}
        )
        if error is not None and not spec.continue_on_failure_post:
            error.hint = error.hint or "the load itself is committed; correct the transform and run again"
            raise error from (error.raised if isinstance(error, TransformRaised) else None)
    return outcomes


class TransformRaised(UserError):
    """Raised when a transform raised; Python callers get its own exception (`own_exceptions`)."""

    def __init__(self, step: str, raised: Exception, *, where: Location | None = None) -> None:
        super().__init__(f"{step} raised {type(raised).__name__}: {raised}", raised=raised, where=where)


@contextmanager
def own_exceptions() -> Iterator[None]:
    """Raise the transform's own exception to a Python caller; the history contains the step."""
    try:
        yield
    except TransformRaised as error:
        raise error.raised from error


def transform_label(transform: Any) -> str:
    """Return the name of a transform in the history."""
    if isinstance(transform, str):
        return "sql"
    if isinstance(transform, TransformRef):
        return f"ref={transform.name}"
    return str(getattr(transform, "__name__", type(transform).__name__))


def plan_of_transform(transform: Any) -> TransformPlan:
    """Return the kind and a one-line summary of a transform for previews."""
    if isinstance(transform, str):
        lines = transform.strip().splitlines() or [""]
        return TransformPlan("sql", lines[0][:200])
    if isinstance(transform, TransformRef):
        return TransformPlan("transform_ref", transform.name)
    return TransformPlan("callable" if callable(transform) else "unknown", transform_label(transform))


def _run_one(target: TargetContext, transform: Any, about: ParentContext, run_named: Callable[[str], Any]) -> Any:
    if isinstance(transform, str):
        with LiveConnection(target.connection) as conn:
            conn.execute(transform)
        return None
    if isinstance(transform, TransformRef):
        known = registry.transforms().get(transform.name)
        if known is None:
            return run_named(transform.name)
        return call_transform(known, about, default=target.connection)
    if isinstance(getattr(transform, "spec", None), PipelineSpec):
        return run_named(transform.spec.name)
    if callable(transform):
        return _call(transform, target.connection, about)
    raise TypeError(f"transforms_post does not take {transform!r}")


def call_transform(known: TransformSpec, about: ParentContext | None, *, default: Any = None) -> Any:
    """Run a named transform on its own connection, else on the load's, and return its result."""
    return _call(known.function, known.target_connection or default or "default", about)


def _call(function: Callable[..., Any], connection: Any, about: ParentContext | None) -> Any:
    with open_connection(connection) as conn, start_session_with(lambda: spark_session(conn.backend.jars)):
        takes = len(inspect.signature(function).parameters)
        return await_result(function(conn, about) if takes == 2 else function(conn))


def _record(
    target: TargetContext, about: ParentContext, step: str, error: FlowError | None, metrics: Any, started: Any
) -> None:
    kept = json.dumps(metrics, default=str) if isinstance(metrics, Mapping) else None
    target.sink.record_transform(
        str(uuid.uuid4()),
        parent=about.run_id,
        pipeline=about.pipeline_name,
        step=step,
        error=mask(error.what) if error else None,
        metrics=kept,
        started_at=started,
    )
