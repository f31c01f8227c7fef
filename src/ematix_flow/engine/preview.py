"""What a run would do, told before it is done."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ematix_flow.contract.ddl import CreateTable
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.strategy import Merge, Scd2
from ematix_flow.engine import post
from ematix_flow.engine.ask import NoSource
from ematix_flow.engine.batch import source_of
from ematix_flow.engine.choice import choose as choose_engine
from ematix_flow.engine.context import LoadContext, RunContext
from ematix_flow.engine.lanes import lane_of
from ematix_flow.engine.reading import Reading, choose, prepared_frame, source_frame
from ematix_flow.engine.steps import StepClock
from ematix_flow.engine.walk import job_of
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import FlowError
from ematix_flow.planning.drift import plan_ddl, settle_drift
from ematix_flow.planning.lanes import WITHOUT_SPARK


@dataclass(frozen=True)
class TargetPlan:
    """One target of the plan."""

    schema_qualified_name: str
    mode: str
    path: str
    path_reason: str
    lane: str
    lane_reason: str
    target_connection_name: str
    target_kind: str
    exists: bool
    rows: int | None
    declared_columns: tuple[str, ...]
    augmented_columns: tuple[str, ...]
    merge_keys: tuple[str, ...] = ()
    merge_keys_reason: str = ""
    compare_columns: tuple[str, ...] = ()
    compare_columns_reason: str = ""
    schema_changes: tuple[str, ...] = ()
    drift: tuple[str, ...] = ()
    plan_sql: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    on_quality_failure: str = ""


@dataclass(frozen=True)
class Preview:
    """The whole plan; `to_text()` for people, `to_dict()` for programs."""

    pipeline_name: str
    schedule: str | None
    source_connection_name: str | None
    source_kind: str
    source_sql: str
    source_columns: tuple[str, ...]
    estimated_rows: int | None
    reads: int
    reads_reason: str
    targets: tuple[TargetPlan, ...]
    transforms_post: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    sample_columns: tuple[str, ...] = ()
    sample: tuple[tuple[Any, ...], ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        return plain

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self.to_dict(), indent=2)

    def to_text(self) -> str:
        """A few aligned lines."""
        rows = f"~{self.estimated_rows:,} rows" if self.estimated_rows is not None else "rows unknown"
        where = f"{self.source_kind} {self.source_connection_name or ''}".strip()
        lines = [
            f"{self.pipeline_name}",
            _line("source", f"{where}, {rows}, {self.reads} read(s) ({self.reads_reason})"),
            *(_line("", text) for text in self.source_sql.strip().splitlines()),
        ]
        for target in self.targets:
            lines += _target_lines(target)
        lines += [_line("after", text) for text in self.transforms_post]
        lines += [_line("spark", text) for text in self.settings]
        if self.sample_columns:
            lines += [_line("rows", " | ".join(self.sample_columns))]
            lines += [_line("", " | ".join(str(value) for value in row)) for row in self.sample]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from html import escape

        cells = [line.split(None, 1) for line in self.to_text().splitlines()[1:] if line.strip()]
        body = "".join(f"<tr><th>{escape(cell[0])}</th><td>{escape(cell[-1])}</td></tr>" for cell in cells)
        return f"<table><caption>{escape(self.pipeline_name)}</caption>{body}</table>"


def _line(label: str, text: str) -> str:
    return f"  {label:<9}{text}".rstrip()


def _target_lines(target: TargetPlan) -> list[str]:
    held = f", {target.rows:,} rows" if target.rows is not None else ""
    state = f"exists{held}" if target.exists else "will be created"
    inside = "inside the database" if target.path == "same_db" else "from system to system"
    lines = [
        _line("path", f"{target.path}: {inside} ({target.path_reason})"),
        *([] if target.path == "same_db" else [_line("lane", f"{target.lane} ({target.lane_reason})")]),
        _line(
            "target", f"{target.schema_qualified_name} on {target.target_kind} {target.target_connection_name}, {state}"
        ),
    ]
    lines += [_line("schema", text) for text in target.schema_changes]
    lines += [_line("drift", text) for text in target.drift]
    strategy = target.mode
    if target.merge_keys:
        strategy += f" on {', '.join(target.merge_keys)} ({target.merge_keys_reason})"
    if target.compare_columns:
        strategy += f", compares {', '.join(target.compare_columns)} ({target.compare_columns_reason})"
    lines.append(_line("strategy", strategy))
    lines += [_line("checks", f"{text} (else {target.on_quality_failure})") for text in target.checks]
    lines += [_line("steps", " → ".join(target.steps))]
    return lines + [_line("ddl", statement) for statement in target.plan_sql]


def preview(spec: PipelineSpec, *, rows: int = 0) -> Preview:
    """Plan a run; `rows` asks for a sample of prepared rows too."""
    with source_of(spec, StepClock(spec.name)) as (context, reading):
        if isinstance(reading, NoSource):
            return Preview(
                spec.name, spec.schedule, None, "function", "", (), None, 0, "the function does the work", ()
            )
        targets = tuple(_target_plan(context, target, reading) for target in context.loads)
        names: Sequence[str] = ()
        sample: Sequence[tuple[Any, ...]] = ()
        if rows:
            frame = prepared_frame(context, context.loads[0], source_frame(context, reading, None), None).limit(rows)
            names, sample = frame.columns, [tuple(row) for row in frame.collect()]
        plan = reading.plan
        return Preview(
            pipeline_name=spec.name,
            schedule=spec.schedule,
            source_connection_name=reading.origin,
            source_kind=reading.kind,
            source_sql=reading.query,
            source_columns=tuple(f"{column.name} {column.native}" for column in reading.columns()),
            estimated_rows=plan.estimated_rows if plan else None,
            reads=plan.splits if plan else 1,
            reads_reason=plan.split_reason if plan else "a dataframe",
            targets=targets,
            transforms_post=tuple(post.label(transform) for transform in spec.transforms_post),
            settings=_settings(context, targets),
            sample_columns=tuple(names),
            sample=tuple(sample),
        )


def _settings(context: RunContext, targets: Sequence[TargetPlan]) -> tuple[str, ...]:
    """What this run alone tells Spark; the settings of every session are in `flow doctor spark`."""
    if all(target.lane in WITHOUT_SPARK for target in targets):
        return ()
    own = choose_engine(context.spec.engine).settings
    tuned = (item for item in context.tuned if item.name not in own)
    return tuple(f"{item.name}={item.value} ({item.reason})" for item in tuned)


def _target_plan(context: RunContext, target: LoadContext, reading: Reading) -> TargetPlan:
    inside = choose(context, target, reading)
    job = job_of(context.spec, target, inside, run_id="preview", started_at=now())
    lane = lane_of(context, target, job, reading, inside)
    if target.backend.dialect == "spark" and lane.lane not in WITHOUT_SPARK:
        context.spark()
    state = target.ddl.inspect(target.shape)
    plan = plan_ddl(target.shape, state, target.ddl.stored_type)
    strategy = target.load.strategy
    keyed = isinstance(strategy, (Merge, Scd2))
    created = any(isinstance(step, CreateTable) for step in plan.steps)
    expect = ["Expectations"] if target.load.checks else []
    steps = [*(["EnsureTable"] if plan.steps else []), "Read", "Prepare", "Stage", *expect, "CheckBefore", "Write"]
    if context.spec.incremental:
        steps.append("AdvanceWatermark")
    steps += ["Transform"] * len(context.spec.transforms_post)
    return TargetPlan(
        schema_qualified_name=target.load.table.qualified,
        mode=strategy.mode,
        path=inside.choice.path,
        path_reason=inside.choice.reason,
        lane=lane.lane,
        lane_reason=lane.reason,
        target_connection_name=str(target.connection.name),
        target_kind=target.backend.name,
        exists=state is not None,
        rows=state.rows if state else None,
        declared_columns=target.load.table.column_names,
        augmented_columns=tuple(column.name for column in target.shape.added),
        merge_keys=strategy.keys if keyed else (),  # type: ignore[union-attr]
        merge_keys_reason=target.load.keys_reason,
        compare_columns=strategy.compare if keyed else (),  # type: ignore[union-attr]
        compare_columns_reason=target.load.compare_reason,
        schema_changes=() if created else tuple(str(step) for step in plan.steps),
        drift=tuple(item.text for item in plan.drift),
        plan_sql=tuple(target.ddl.statements(target.shape, plan.steps)),
        steps=tuple(steps),
        checks=tuple(str(check) for check in target.load.checks),
        on_quality_failure=context.spec.quality.on_failure if target.load.checks else "",
    )


@dataclass(frozen=True)
class ValidateResult:
    """Whether source, target and declaration fit together."""

    pipeline_name: str
    ok: bool
    source_sql: str
    errors: tuple[str, ...] = ()
    target_connection_name: str | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return asdict(self)


def validate(spec: PipelineSpec) -> ValidateResult:
    """Plan against the real systems and collect what is wrong; nothing is changed."""
    if not spec.loads:
        return ValidateResult(spec.name, ok=True, source_sql="", notes=("a plain function: nothing to check",))
    errors: list[str] = []
    notes: list[str] = []
    sql = ""
    try:
        with source_of(spec, StepClock(spec.name)) as (context, reading):
            if not isinstance(reading, NoSource):
                sql = reading.query
                for target in context.loads:
                    _validate_target(context, target, reading, errors, notes)
    except FlowError as exc:
        errors.append(str(exc))
    named = spec.loads[0].connection
    name = named if isinstance(named, str) else str(getattr(named, "name", named))
    return ValidateResult(spec.name, not errors, sql, tuple(errors), name, tuple(notes))


def _validate_target(
    context: RunContext, target: LoadContext, reading: Reading, errors: list[str], notes: list[str]
) -> None:
    try:
        planned = _target_plan(context, target, reading)
        plan = plan_ddl(target.shape, target.ddl.inspect(target.shape), target.ddl.stored_type)
        settle_drift(plan, context.spec.on_drift, table=target.load.table.qualified, where=target.load.table.where)
        notes.append(f"{planned.schema_qualified_name}: {planned.path} ({planned.path_reason})")
    except FlowError as exc:
        errors.append(str(exc.at(context.spec.where)))
