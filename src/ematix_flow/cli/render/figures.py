"""The figures in a run's record; records of older versions contain fewer of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ematix_flow.cli.render.step_labels import ordered_steps
from ematix_flow.run_log.records import RunRecord

LOADING = ("read", "stage")
_HOW = {
    "started": "started by this run",
    "reused": "started by an earlier run of the same process",
    "given": "the session that was there",
    "joined": "joined",
}


@dataclass(frozen=True)
class RunFigures:
    """The figures of one run; None or empty where the record does not contain them."""

    took: float | None = None
    steps: Mapping[str, float] = field(default_factory=dict)
    rows: int | None = None
    size: int | None = None
    size_of: str = ""
    cpu: float | None = None
    targets: tuple[Mapping[str, Any], ...] = ()
    session: Mapping[str, Any] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    declaration: str = ""
    machine: str = ""

    @classmethod
    def of(cls, record: RunRecord) -> RunFigures:
        """Read a record; leave out what is missing or malformed."""
        extras = record.extras
        targets = targets_of(record)
        size, size_of = _size(targets)
        worker = extras.get("worker")
        return cls(
            took=None if record.duration_ms is None else record.duration_ms / 1000,
            steps=_steps(extras.get("steps")),
            rows=_rows(targets),
            size=size,
            size_of=size_of,
            cpu=_number(extras.get("cpu_seconds")),
            targets=tuple(targets),
            session=_mapping(extras.get("session")) or None,
            settings=_texts(extras.get("settings")),
            versions=_texts(extras.get("versions")),
            declaration=str(extras.get("declaration") or ""),
            machine=worker.partition(":")[0] if isinstance(worker, str) else "",
        )

    @property
    def measured(self) -> float:
        """The sum of the step durations in seconds, 0 for a record without steps."""
        return sum(self.steps.values())

    @property
    def loading(self) -> float | None:
        """The seconds spent reading and staging rows; None if there are none."""
        return sum(self.steps.get(step, 0.0) for step in LOADING) or None

    @property
    def rows_per_second(self) -> float | None:
        """Rows per second of loading."""
        return self.rows / self.loading if self.rows and self.loading else None

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes per second of loading."""
        return self.size / self.loading if self.size and self.loading else None

    @property
    def cores(self) -> float | None:
        """Processor seconds per second of the run."""
        return self.cpu / self.measured if self.cpu is not None and self.measured else None

    def share(self, step: str) -> float:
        """Return the share of a step in the whole run, between 0 and 1."""
        return self.steps.get(step, 0.0) / self.measured if self.measured else 0.0

    def reasoned(self, word: str) -> str:
        """Return path or lane of the targets with their reasons, each text once."""
        texts = []
        for target in self.targets:
            chosen, reason = target.get(word), target.get(f"{word}_reason")
            if chosen:
                texts.append(f"{chosen} ({reason})" if reason else str(chosen))
        return "; ".join(dict.fromkeys(texts))

    def engine(self, *, exactly: bool = True) -> str:
        """Return a description of the engine; `exactly=False` leaves out the process id, for comparing runs."""
        if not self.steps:
            return ""
        if self.session is None:
            return "none: no Spark was needed"
        if self.session.get("kind") == "warm":
            return f"engine {self.session.get('pid')}, kept for the next commands" if exactly else "a warm engine"
        how = _HOW.get(str(self.session.get("how")), "")
        return ", ".join(word for word in (str(self.session.get("engine") or ""), how) if word)


def targets_of(record: RunRecord) -> list[dict[str, Any]]:
    """Return the targets of a run."""
    targets = record.extras.get("targets")
    return [target for target in targets if isinstance(target, dict)] if isinstance(targets, list) else []


def _steps(value: Any) -> dict[str, float]:
    by_step: dict[str, float] = {}
    for item in value if isinstance(value, list) else []:
        seconds = _number(item.get("seconds")) if isinstance(item, Mapping) else None
        if seconds is not None and seconds >= 0:
            name = str(item.get("step"))
            by_step[name] = by_step.get(name, 0.0) + seconds
    return {step: by_step[step] for step in ordered_steps(by_step)}


def _rows(targets: list[dict[str, Any]]) -> int | None:
    counted = [_number(target.get("rows_read")) for target in targets if not target.get("error")]
    known = [int(rows) for rows in counted if rows is not None]
    return sum(known) if known else None


def _size(targets: list[dict[str, Any]]) -> tuple[int | None, str]:
    """Return the bytes of all targets and how they were measured; None if one is unknown or the measures differ."""
    sizes = [_number(target.get("bytes_staged")) for target in targets]
    kinds = {str(target.get("bytes_of") or "") for target in targets}
    if not sizes or None in sizes or len(kinds) > 1:
        return None, ""
    return int(sum(size for size in sizes if size is not None)), kinds.pop()


def _number(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _texts(value: Any) -> dict[str, str]:
    return {str(name): str(text) for name, text in _mapping(value).items()}
