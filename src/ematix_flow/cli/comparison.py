"""Comparison of two runs: durations, amounts, engine, versions and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ematix_flow.cli.advice import short
from ematix_flow.cli.amounts import size
from ematix_flow.cli.cost_lines import seconds
from ematix_flow.cli.figures import Figures
from ematix_flow.cli.moments import local
from ematix_flow.cli.steps import in_order
from ematix_flow.runlog.records import RunRecord
from ematix_flow.runlog.worker import shown_status

_SAME_SHARE, _SAME_SECONDS = 0.05, 0.1
_UNKNOWN = "-"


@dataclass(frozen=True)
class Figure:
    """A number of both runs; None where the record of a run does not contain it."""

    what: str
    unit: str
    before: float | None
    after: float | None

    @property
    def change(self) -> float | None:
        """The difference `after - before`; None if either is unknown."""
        return self.after - self.before if self.before is not None and self.after is not None else None

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as a dict that can be written as JSON."""
        return {**asdict(self), "change": None if self.change is None else round(self.change, 6)}


@dataclass(frozen=True)
class Word:
    """A text of both runs, such as the path or the engine; empty where the record does not contain it."""

    what: str
    before: str
    after: str

    @property
    def is_changed(self) -> bool:
        """Whether the texts differ; an empty text is not compared."""
        return bool(self.before and self.after) and self.before != self.after

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as a dict that can be written as JSON."""
        return {**asdict(self), "changed": self.is_changed}


@dataclass(frozen=True)
class Comparison:
    """The comparison of two runs."""

    before: RunRecord
    after: RunRecord

    @property
    def figures(self) -> list[Figure]:
        """Durations, amounts and rates that at least one of the runs has."""
        old, new = Figures.of(self.before), Figures.of(self.after)
        steps = in_order([*old.steps, *new.steps])
        found = [
            Figure("took", "s", old.took, new.took),
            *(Figure(step, "s", *(_step(item, step) for item in (old, new))) for step in steps),
            Figure("rows", "rows", old.rows, new.rows),
            *_sizes(old, new),
            Figure("rows/s", "rows/s", old.rows_per_second, new.rows_per_second),
            Figure("cpu", "s", old.cpu, new.cpu),
            Figure("cores", "cores", old.cores, new.cores),
        ]
        return [item for item in found if item.before is not None or item.after is not None]

    @property
    def words(self) -> list[Word]:
        """Lane, path, engine and other texts that at least one of the runs has."""
        old, new = Figures.of(self.before), Figures.of(self.after)
        found = [
            Word("pipeline", self.before.pipeline, self.after.pipeline),
            Word("status", shown_status(self.before), shown_status(self.after)),
            Word("path", old.reasoned("path"), new.reasoned("path")),
            Word("lane", old.reasoned("lane"), new.reasoned("lane")),
            Word("bytes are", old.size_of, new.size_of),
            Word("engine", old.engine(exactly=False), new.engine(exactly=False)),
            Word("machine", old.machine, new.machine),
            Word("declared", old.declaration, new.declaration),
            *(Word(name, old.versions.get(name, ""), new.versions.get(name, ""))
              for name in dict.fromkeys([*old.versions, *new.versions])),
        ]  # fmt: skip
        return [item for item in found if item.before or item.after]

    @property
    def settings(self) -> list[Word]:
        """The Spark settings that differ; empty unless both runs had a session."""
        old, new = Figures.of(self.before).settings, Figures.of(self.after).settings
        if not old or not new:
            return []
        return [
            Word(name, old.get(name, "(not set)"), new.get(name, "(not set)"))
            for name in sorted({*old, *new})
            if old.get(name) != new.get(name)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as a dict that can be written as JSON."""
        return {
            "before": self.before.run_id,
            "after": self.after.run_id,
            "summary": self.summary(),
            "figures": [item.to_dict() for item in self.figures],
            "words": [item.to_dict() for item in self.words],
            "settings": [item.to_dict() for item in self.settings],
        }

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return the rows of the printed table: all numbers, and the texts that changed."""
        table = [("started", local(self.before.started_at), local(self.after.started_at), "")]
        table += [
            (item.what, _shown(item.before, item.unit), _shown(item.after, item.unit), _change(item))
            for item in self.figures
        ]
        return table + [(item.what, item.before, item.after, "changed") for item in self._changed()]

    def unchanged(self) -> list[str]:
        """Return the names of the texts that are equal in both runs."""
        return [item.what for item in self.words if item.before == item.after]

    def summary(self) -> str:
        """Return one sentence on what changed."""
        told = [_durations(self.before, self.after, self.figures)]
        rows = next((item for item in self.figures if item.what == "rows"), None)
        if rows is not None and rows.before and rows.after is not None and abs(rows.after / rows.before - 1) >= 0.1:
            told.append(f"{rows.after / rows.before:.1f} times the rows")
        changed = [item.what for item in self._changed() if item.what != "pipeline"]
        if changed:
            shown = changed[:5] + ([f"{len(changed) - 5} more"] if len(changed) > 5 else [])
            told.append(f"changed: {', '.join(shown)}")
        return "; ".join(told)

    def _changed(self) -> list[Word]:
        return [item for item in [*self.words, *self.settings] if item.is_changed]


def _step(figures: Figures, step: str) -> float | None:
    """Return the seconds of a step: 0 if a run with recorded steps lacks it, None for a run without recorded steps."""
    return figures.steps.get(step, 0.0) if figures.steps else None


def _sizes(old: Figures, new: Figures) -> Iterator[Figure]:
    """Yield the byte numbers, unless one run measured Arrow batches and the other files, which cannot be compared."""
    if old.size_of == new.size_of or old.size is None or new.size is None:
        yield Figure("bytes", "B", old.size, new.size)
        yield Figure("bytes/s", "B/s", old.bytes_per_second, new.bytes_per_second)


def _durations(before: RunRecord, after: RunRecord, figures: list[Figure]) -> str:
    took, *rest = figures if figures and figures[0].what == "took" else [Figure("took", "s", None, None)]
    first, second = short(before.run_id), short(after.run_id)
    if took.before is None or took.after is None:
        return f"{second if took.after is None else first} has not finished"
    change = took.after - took.before
    if abs(change) <= max(_SAME_SECONDS, _SAME_SHARE * took.before):
        return f"both took about as long: {seconds(took.before)} and {seconds(took.after)}"
    word = "longer" if change > 0 else "less"
    told = f"{second} took {seconds(abs(change))} {word} than {first}"
    steps = [item for item in rest if item.unit == "s" and item.what != "cpu" and item.change is not None]
    largest = max(steps, key=lambda item: (item.change or 0.0) * (1 if change > 0 else -1), default=None)
    if largest is not None and largest.change is not None and largest.change * change > 0:
        told += f", mainly in {largest.what} ({_signed(largest.change, seconds)})"
    return told


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return _UNKNOWN
    if unit == "s":
        return seconds(value)
    if unit in ("B", "B/s"):
        return size(value) + unit[1:]
    return f"{value:,.1f}" if unit == "cores" else f"{value:,.0f}"


def _change(item: Figure) -> str:
    if item.change is None:
        return ""
    told = _signed(item.change, lambda value: _shown(value, item.unit))
    share = 100 * item.change / item.before if item.before else 0.0
    return f"{told} ({share:+.0f} %)" if abs(share) >= 0.5 else told


def _signed(change: float, show: Callable[[float], str]) -> str:
    if not change:
        return "="
    return f"{'+' if change > 0 else '-'}{show(abs(change))}"
