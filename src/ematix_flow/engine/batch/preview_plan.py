"""The plan of a run as values, and its rendering as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class TransformPlan:
    """A transform after the load: `sql`, a `callable` or a `transform_ref`, with a one-line summary."""

    kind: str
    summary: str


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
    exists: bool | None
    """Whether the table exists; None where it could not be looked up."""
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
    target_connection_info: Mapping[str, str] | None = None
    plan_sql_label: str = "schema"


@dataclass(frozen=True)
class Preview:
    """The complete plan; `to_text()` for people, `to_dict()` for programs."""

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
    transforms_post: list[TransformPlan] = field(default_factory=list)
    settings: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()
    """The join order where it differs from the written one, with its reason."""
    sample_columns: tuple[str, ...] = ()
    sample: tuple[tuple[Any, ...], ...] = field(default=())
    mode: str | None = None
    source_connection_info: Mapping[str, str] | None = None
    notes: list[str] = field(default_factory=list)
    """Facts that could not be looked up, and the reasons."""
    is_dry_run: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, serializable as JSON."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        return plain

    def to_json(self) -> str:
        """Return all fields as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    def to_text(self) -> str:
        """Return the plan as aligned lines of text."""
        rows = f"~{self.estimated_rows:,} rows" if self.estimated_rows is not None else "rows unknown"
        where = f"{self.source_kind} {self.source_connection_name or ''}".strip()
        lines = [
            f"{self.pipeline_name}",
            _line("source", f"{where}, {rows}, {self.reads} read(s) ({self.reads_reason})"),
            *(_line("", text) for text in self.source_sql.strip().splitlines()),
            *(_line("joins", text) for text in self.joins),
        ]
        for target in self.targets:
            lines += _target_lines(target)
        lines += [_line("after", plan.summary) for plan in self.transforms_post]
        lines += [_line("spark", text) for text in self.settings]
        lines += [_line("note", text) for text in self.notes]
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
    state = "not asked" if target.exists is None else f"exists{held}" if target.exists else "will be created"
    inside = "inside the database" if target.path == "same_db" else "from system to system"
    lines = [
        _line("path", f"{target.path}: {inside} ({target.path_reason})"),
        *(
            []
            if target.path == "same_db" or not target.lane
            else [_line("lane", f"{target.lane} ({target.lane_reason})")]
        ),
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
    lines += [_line("steps", " → ".join(target.steps))] if target.steps else []
    return lines + [_line("ddl", statement) for statement in target.plan_sql]


PreviewResult = Preview


def render_text(result: Preview, *, verbose: bool = False, use_color: bool = False) -> str:
    """Return the plan as aligned lines; `verbose` adds the statements that will change the schema."""
    title, *lines = result.to_text().splitlines()
    shown = [line for line in lines if verbose or not line.startswith("  ddl ")]
    return "\n".join([f"\x1b[1m{title}\x1b[0m" if use_color else title, *shown])
