"""Preview and validation of a run before it is executed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ematix_flow.contract.backend import Backend
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.strategy import Merge, Scd2
from ematix_flow.engine.batch import post_load
from ematix_flow.engine.batch.context import RunContext, TargetContext
from ematix_flow.engine.batch.plan import (
    Adopt,
    Begin,
    CheckStage,
    EnforceChecks,
    Ensure,
    LoadPlan,
    LoadStep,
    Publish,
    Refine,
    RefusedLoad,
    RunParameters,
    Settle,
    StageArrow,
    StageQuery,
    StageRows,
    Transform,
)
from ematix_flow.engine.batch.planner import open_plan
from ematix_flow.engine.batch.preview_offline import preview_offline_plan
from ematix_flow.engine.batch.preview_plan import Preview, TargetPlan
from ematix_flow.engine.batch.reading import PlannedSource, normalized_query, prepared_frame, source_frame
from ematix_flow.engine.batch.step_clock import StepClock
from ematix_flow.engine.connections.connection import LiveConnection
from ematix_flow.engine.session.engine_choice import choose_engine as choose_engine
from ematix_flow.engine.session.spark_settings import is_set_by_user
from ematix_flow.engine.sql.sources import NoSource
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import ConfigError, ConnectionFailed, FlowError, MissingTable, assert_never
from ematix_flow.planning.drift import apply_drift_policy
from ematix_flow.planning.lanes import INSIDE
from ematix_flow.sql.expressions import CannotRender

__all__ = ["Preview", "TargetPlan", "ValidateResult", "preview", "validate"]
_EXPLAINED = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH|MERGE|REPLACE)\b", re.IGNORECASE)


def preview(spec: PipelineSpec, *, rows: int = 0) -> Preview:
    """Plan a run and return the plan; `rows` is the size of a sample of prepared rows.

    Where a connection is not configured or does not answer, the plan is derived from the declarations, with notes about
    what could not be looked up.
    """
    try:
        return _build_preview(spec, rows)
    except (ConnectionFailed, ConfigError) as error:
        if rows or not spec.loads:
            raise
        return preview_offline_plan(spec, error)


def _build_preview(spec: PipelineSpec, rows: int) -> Preview:
    with open_plan(spec, _parameters(), StepClock(spec.name)) as (context, plan):
        if isinstance(plan, NoSource):
            return Preview(
                spec.name, spec.schedule, None, "function", "", (), None, 0, "the function does the work", ()
            )
        targets = tuple(_target_plan(spec, load) for load in plan.accepted())
        names: Sequence[str] = ()
        sample: Sequence[tuple[Any, ...]] = ()
        reading = plan.reading
        if rows:
            frame = prepared_frame(context, context.loads[0], source_frame(context, reading, None), None).limit(rows)
            names, sample = frame.columns, [tuple(row) for row in frame.collect()]
        read = reading.plan
        return Preview(
            pipeline_name=spec.name,
            schedule=spec.schedule,
            source_connection_name=reading.origin,
            source_kind=reading.kind,
            source_sql=_normalized(context, reading),
            source_columns=tuple(f"{column.name} {column.native}" for column in reading.columns()),
            estimated_rows=reading.estimated_rows,
            reads=read.splits if read else 1,
            reads_reason=read.split_reason if read else "a dataframe",
            targets=targets,
            transforms_post=[post_load.plan_of_transform(step.transform) for step in plan.transforms],
            mode=None if spec.fan_out else spec.loads[0].mode,
            source_connection_info=_connection_info(reading.backend, reading.connection),
            settings=_settings(context, targets),
            joins=read.joins if read else (),
            sample_columns=tuple(names),
            sample=tuple(sample),
        )


def _parameters() -> RunParameters:
    return RunParameters("preview", now())


def _normalized(context: RunContext, reading: PlannedSource) -> str:
    """Return the source's SQL with normalizers and pre-transforms if the database runs them, else unchanged."""
    if reading.backend is None or reading.plan is None or context.spec.fan_out or context.spec.transform_sql:
        return reading.query
    kinds = {column.name: column.type.kind for column in reading.plan.columns if column.type is not None}
    table, dialect = context.loads[0].load.table, reading.backend.dialect
    try:
        return normalized_query(table, reading.query, context.spec.transforms_pre, dialect, kinds)
    except CannotRender:
        return reading.query


def _connection_info(backend: Backend | None, connection: Any) -> dict[str, str] | None:
    return LiveConnection(connection).connection_info() if backend is not None and connection is not None else None


def _settings(context: RunContext, targets: Sequence[TargetPlan]) -> tuple[str, ...]:
    """Return the Spark settings of this run alone; those of every session are shown by `flow doctor spark`."""
    if all(target.lane == INSIDE for target in targets):
        return ()
    own = choose_engine(context.spec.engine).settings
    tuned = (item for item in context.session.tuned if not is_set_by_user(item.name, own))
    return tuple(f"{item.name}={item.value} ({item.reason})" for item in tuned)


def _target_plan(spec: PipelineSpec, load: LoadPlan) -> TargetPlan:
    route, ensure, target = load.route, load.ensure, load.route.target
    strategy = target.load.strategy
    keyed = isinstance(strategy, (Merge, Scd2))
    named = [name for step in (*load.opening, *load.loading) for name in _step_names(step, spec)]
    return TargetPlan(
        schema_qualified_name=target.load.table.qualified,
        mode=strategy.mode,
        path=route.source.choice.path,
        path_reason=route.source.choice.reason,
        lane=route.lane.lane,
        lane_reason=route.lane.reason,
        target_connection_name=str(target.connection.name),
        target_kind=target.backend.name,
        exists=not ensure.creates,
        rows=ensure.found.rows if ensure.found else None,
        declared_columns=target.shape.stored_columns,
        augmented_columns=tuple(column.name for column in target.shape.added),
        merge_keys=strategy.keys if keyed else (),  # type: ignore[union-attr]
        merge_keys_reason=target.load.keys_reason,
        compare_columns=strategy.compare if keyed else (),  # type: ignore[union-attr]
        compare_columns_reason=target.load.compare_reason,
        schema_changes=() if ensure.creates else tuple(str(step) for step in ensure.ddl.steps),
        drift=tuple(item.text for item in ensure.ddl.drift),
        plan_sql=tuple(target.ddl.statements(target.shape, ensure.ddl.steps)),
        steps=(*named, *["Transform"] * len(spec.transforms_post)),
        checks=tuple(str(check) for check in target.load.checks),
        on_quality_failure=spec.quality.on_failure if target.load.checks else "",
        target_connection_info=_connection_info(target.backend, target.connection),
    )


def _step_names(step: LoadStep, spec: PipelineSpec) -> tuple[str, ...]:
    """Return the names under which a step is shown."""
    match step:
        case Ensure():
            return ("EnsureTable",) if step.ddl.steps else ()
        case StageQuery() | StageArrow() | StageRows():
            return ("Read", "Prepare", "Stage")
        case CheckStage():
            return ("Expectations",)
        case Publish():
            return ("CheckBefore", "Write", *(["AdvanceWatermark"] if spec.incremental else []))
        case Begin() | Refine() | Adopt() | EnforceChecks() | Settle():
            return ()
        case _:
            return assert_never(step)


@dataclass(frozen=True)
class ValidateResult:
    """The result of a validation: whether source, target and declaration fit together."""

    pipeline_name: str
    ok: bool
    source_sql: str
    errors: list[str] = field(default_factory=list)
    target_connection_name: str | None = None
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, serializable as JSON."""
        return asdict(self)


def validate(spec: PipelineSpec) -> ValidateResult:
    """Plan against the real systems and return all errors found; nothing is changed."""
    if not spec.loads:
        return ValidateResult(spec.name, ok=True, source_sql="", notes=["a plain function: nothing to check"])
    errors: list[str] = []
    notes: list[str] = []
    sql = ""
    try:
        with open_plan(spec, _parameters(), StepClock(spec.name)) as (context, plan):
            if not isinstance(plan, NoSource):
                sql = _normalized(context, plan.reading)
                for load in plan.loads:
                    _validate_load(spec, load, errors, notes)
                _validate_transforms(context, plan.transforms, errors, notes)
    except FlowError as exc:
        errors.append(str(exc))
    named = spec.loads[0].connection
    name = named if isinstance(named, str) else str(getattr(named, "name", named))
    return ValidateResult(spec.name, not errors, sql, errors, name, notes)


def _validate_load(spec: PipelineSpec, load: LoadPlan | RefusedLoad, errors: list[str], notes: list[str]) -> None:
    if isinstance(load, RefusedLoad):
        errors.append(str(load.error))
        return
    table, choice = load.route.target.load.table, load.route.source.choice
    try:
        apply_drift_policy(load.ensure.ddl, spec.on_drift, table=table.qualified, where=table.where)
        notes.append(f"{table.qualified}: {choice.path} ({choice.reason})")
    except FlowError as exc:
        errors.append(str(exc.at(spec.where)))


def _validate_transforms(context: RunContext, steps: Sequence[Transform], errors: list[str], notes: list[str]) -> None:
    """Run EXPLAIN in the target for the post-load SQL; functions and SQL that cannot be explained are noted."""
    target = context.loads[0]
    for step in steps:
        name, transform = f"transforms_post[{step.number}]", step.transform
        if not isinstance(transform, str):
            notes.append(f"{name}: {post_load.transform_label(transform)} is not checked: only it knows what it does")
        elif target.backend.is_lake or not _EXPLAINED.match(transform) or ";" in transform.rstrip("; \n"):
            notes.append(f"{name}: not checked: {post_load.plan_of_transform(transform).summary}")
        else:
            _explain(target, name, transform, errors, notes)


def _explain(target: TargetContext, name: str, statement: str, errors: list[str], notes: list[str]) -> None:
    try:
        with LiveConnection(target.connection) as conn:
            conn.query(f"EXPLAIN {statement.rstrip('; ')}")
    except MissingTable as error:
        if target.ddl.inspect(target.shape) is None and target.load.table.name in error.what:
            notes.append(f"{name}: not checked: {target.load.table.qualified} is made by the load")
        else:
            errors.append(f"{name}: {error.what}")
    except FlowError as error:
        errors.append(f"{name}: {error.what}")
