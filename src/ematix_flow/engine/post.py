"""Post-load transforms: SQL, callables and references, each in its own transaction, each in the history."""

from __future__ import annotations

import inspect
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ematix_flow.declare import registry
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.registry import TransformRef, TransformSpec
from ematix_flow.engine.context import LoadContext, RunContext
from ematix_flow.engine.handle import Connection, connect
from ematix_flow.engine.result import Event, TargetResult
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import FlowError, RunFailed
from ematix_flow.foundation.redact import mask


@dataclass(frozen=True)
class ParentContext:
    """The load a transform follows."""

    pipeline_name: str
    run_id: str
    rows_inserted: int
    rows_updated: int
    rows_unchanged: int


def run_transforms(
    context: RunContext,
    parent: TargetResult,
    emit: Callable[[Event], None],
    run_named: Callable[[str], Any],
    *,
    first: int = 0,
) -> list[dict[str, Any]]:
    """Run them in order; the first failure ends the run unless the pipeline says otherwise. The load stays."""
    outcomes: list[dict[str, Any]] = []
    spec = context.spec
    target = context.loads[0]
    about = ParentContext(spec.name, parent.run_id, parent.rows_inserted, parent.rows_updated, parent.rows_unchanged)
    for index, transform in enumerate(spec.transforms_post):
        if index < first:
            continue
        step = f"transform[{index}]:{label(transform)}"
        emit(Event(spec.name, "transform", step))
        started = now()
        error: FlowError | None = None
        metrics: Any = None
        try:
            metrics = _run_one(target, transform, about, run_named)
        except Exception as exc:
            error = exc if isinstance(exc, FlowError) else RunFailed(f"{step} raised {type(exc).__name__}: {exc}")
            error.at(spec.where)
            error.facts.setdefault("step", step)
        _record(target, about, step, error, metrics, started)
        outcomes.append(
            {"step": step, "status": "failed" if error else "success", "error": mask(error.what) if error else None}
        )
        if error is not None and not spec.continue_on_failure_post:
            error.hint = error.hint or "the load itself is committed; correct the transform and run again"
            raise error
    return outcomes


def label(transform: Any) -> str:
    """What a transform is called in the history."""
    if isinstance(transform, str):
        return "sql"
    if isinstance(transform, TransformRef):
        return f"ref={transform.name}"
    return str(getattr(transform, "__name__", type(transform).__name__))


def _run_one(target: LoadContext, transform: Any, about: ParentContext, run_named: Callable[[str], Any]) -> Any:
    if isinstance(transform, str):
        with Connection(target.connection) as conn:
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
    """Run a named transform on its own connection, else on the load's."""
    return _call(known.function, known.target_connection or default or "default", about)


def _call(function: Callable[..., Any], connection: Any, about: ParentContext | None) -> Any:
    with connect(connection) as conn:
        takes = len(inspect.signature(function).parameters)
        return function(conn, about) if takes == 2 else function(conn)


def _record(
    target: LoadContext, about: ParentContext, step: str, error: FlowError | None, metrics: Any, started: Any
) -> None:
    record = getattr(target.sink, "record_transform", None)
    if record is None:
        return
    kept = json.dumps(metrics, default=str) if isinstance(metrics, Mapping) else None
    record(
        str(uuid.uuid4()),
        parent=about.run_id,
        pipeline=about.pipeline_name,
        step=step,
        error=mask(error.what) if error else None,
        metrics=kept,
        started_at=started,
    )
