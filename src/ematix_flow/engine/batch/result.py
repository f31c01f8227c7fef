"""The output of a run: events while it works, and its result at the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

_AT_THE_TOP = ("mode", "path", "rows_inserted", "rows_updated", "rows_unchanged", "rows_closed", "rows_deleted")
_AFFECTED = {
    "append": ("rows_inserted",),
    "truncate": ("rows_inserted", "rows_deleted"),
    "merge": ("rows_inserted", "rows_updated", "rows_unchanged", "rows_deleted"),
    "scd2": ("rows_inserted", "rows_updated", "rows_unchanged", "rows_closed", "rows_deleted"),
}
_VERDICTS = ("empty", "pass", "skipped", "warn", "fail")  # the worst last


@dataclass(frozen=True)
class ProgressEvent:
    """One progress event of a run."""

    pipeline: str
    step: str
    text: str = ""
    rows: int | None = None
    total: int | None = None
    seconds: float = 0.0
    bytes_moved: int | None = None


Listener = Callable[[ProgressEvent], None]


@dataclass(frozen=True)
class StepSeconds:
    """A step of the run and its total seconds."""

    step: str
    seconds: float


@dataclass(frozen=True)
class RunCost:
    """The cost of a run: seconds by step, its Spark session, and processor seconds (None where unknown)."""

    steps: tuple[StepSeconds, ...] = ()
    session: Mapping[str, Any] | None = None
    cpu_seconds: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, serializable as JSON."""
        return {
            "steps": [asdict(step) for step in self.steps],
            "session": dict(self.session) if self.session is not None else None,
            "cpu_seconds": self.cpu_seconds,
        }


@dataclass(frozen=True)
class TargetResult:
    """The result of the run for one target."""

    table: str
    connection: str
    mode: str
    path: str
    lane: str = ""
    status: str = "success"
    rows_read: int = 0
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_unchanged: int = 0
    rows_closed: int = 0
    rows_deleted: int = 0
    watermark: str | None = None
    seconds: float = 0.0
    run_id: str = ""
    error: str | None = None
    notes: tuple[str, ...] = ()
    source_kind: str = ""
    target_kind: str = ""
    path_reason: str = ""
    lane_reason: str = ""
    bytes_staged: int | None = None
    """Bytes written to the stage; None if the rows did not pass through this package, or were not all counted."""
    bytes_of: str = ""
    """The kind of measurement: `arrow` (batches in memory) or `files` (on disk, compressed)."""
    load_seconds: float | None = None
    """Seconds of reading and staging, without the start of Spark."""
    quality: Mapping[str, Any] | None = None
    """The outcome of the quality checks; None when there are none."""

    @property
    def dry_run_rows_affected(self) -> dict[str, int]:
        """Return the row counts of a dry run, by the field names of the result."""
        return {name: getattr(self, name) for name in _AFFECTED.get(self.mode, ())}

    @property
    def dry_run_error(self) -> str | None:
        """Return the error of a dry run, None if it succeeded."""
        return self.error


@dataclass(frozen=True)
class Result(dict[str, Any]):
    """The outcome of a run, which is also a dict: `result["rows_inserted"]`, keyed by table for a fan-out."""

    pipeline: str
    run_id: str
    status: str
    targets: tuple[TargetResult, ...] = ()
    seconds: float = 0.0
    fan_out: bool = False
    value: Any = None
    """The return value of a function that did the work itself."""
    transforms: tuple[Mapping[str, Any], ...] = ()
    cost: RunCost | None = None
    window: str | None = None
    """The loaded window as `start/end`, for a pipeline that reads by windows."""

    def __post_init__(self) -> None:
        self.update(self._flat())

    @property
    def is_dry_run(self) -> bool:
        """Return whether everything was rolled back."""
        return self.status == "dry_run"

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, serializable as JSON; the counts of a single target are repeated at the top level."""
        return {
            "pipeline": self.pipeline,
            "run_id": self.run_id,
            "status": self.status,
            **({"pipeline_name": self.pipeline, "is_dry_run": True} if self.is_dry_run else {}),
            **({name: self[name] for name in _AT_THE_TOP} if len(self.targets) == 1 and not self.fan_out else {}),
            **({"window": self.window} if self.window else {}),
            "seconds": round(self.seconds, 3),
            "targets": [self._target(target) for target in self.targets],
            **({"transforms": [dict(item) for item in self.transforms]} if self.transforms else {}),
            **({"quality": checked} if (checked := self._quality()) is not None else {}),
            **({"result": _plain(self.value)} if self.value is not None else {}),
            **(self.cost.to_dict() if self.cost is not None else {}),
        }

    def _target(self, target: TargetResult) -> dict[str, Any]:
        if not self.is_dry_run:
            return asdict(target)
        return {
            **asdict(target),
            "schema_qualified_name": target.table,
            "dry_run_rows_affected": target.dry_run_rows_affected,
            "dry_run_error": target.dry_run_error,
        }

    def _quality(self) -> dict[str, Any] | None:
        """Return the outcome of the checks; for a fan-out those of all targets, with the worst of their verdicts."""
        known = {target.table: dict(target.quality) for target in self.targets if target.quality is not None}
        if not known or not self.fan_out:
            return next(iter(known.values()), None)
        verdict = max((str(outcome["verdict"]) for outcome in known.values()), key=_VERDICTS.index)
        return {"verdict": verdict, "alert": any(outcome["alert"] for outcome in known.values()), "targets": known}

    def _flat(self) -> dict[str, Any]:
        if isinstance(self.value, Mapping):
            return dict(self.value)
        if self.fan_out:
            return {target.table: asdict(target) for target in self.targets}
        return {**asdict(self.targets[0]), "run_id": self.run_id, "status": self.status} if self.targets else {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self:
            raise AttributeError(name)
        return self[name]


def _plain(value: Any) -> Any:
    """Return a function's result as JSON data: mappings as objects, values without a JSON type as text."""
    return json.loads(json.dumps(dict(value) if isinstance(value, Mapping) else value, default=str))
