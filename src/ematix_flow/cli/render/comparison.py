"""Comparison of two runs: durations, amounts, engine, versions and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ematix_flow.cli.render.advice import short_run_id
from ematix_flow.cli.render.cost_lines import format_step_seconds
from ematix_flow.cli.render.figures import RunFigures
from ematix_flow.cli.render.step_labels import ordered_steps
from ematix_flow.cli.render.units import format_bytes, format_local_time
from ematix_flow.run_log.records import RunRecord
from ematix_flow.run_log.worker import shown_status

_SAME_SHARE, _SAME_SECONDS = 0.05, 0.1
_UNKNOWN = "-"


@dataclass(frozen=True)
class NumberDifference:
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
class TextDifference:
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
class RunComparison:
    """The comparison of two runs."""

    before: RunRecord
    after: RunRecord

    @property
    def number_differences(self) -> list[NumberDifference]:
        """Durations, amounts and rates that at least one of the runs has."""
        old, new = RunFigures.of(self.before), RunFigures.of(self.after)
        steps = ordered_steps([*old.steps, *new.steps])
        differences = [
            NumberDifference("took", "s", old.took, new.took),
            *(NumberDifference(step, "s", *(_step(item, step) for item in (old, new))) for step in steps),
            NumberDifference("rows", "rows", old.rows, new.rows),
            *_sizes(old, new),
            NumberDifference("rows/s", "rows/s", old.rows_per_second, new.rows_per_second),
            NumberDifference("cpu", "s", old.cpu, new.cpu),
            NumberDifference("cores", "cores", old.cores, new.cores),
        ]
        return [item for item in differences if item.before is not None or item.after is not None]

    @property
    def text_differences(self) -> list[TextDifference]:
        """Lane, path, engine and other texts that at least one of the runs has."""
        old, new = RunFigures.of(self.before), RunFigures.of(self.after)
        differences = [
            TextDifference("pipeline", self.before.pipeline, self.after.pipeline),
            TextDifference("status", shown_status(self.before), shown_status(self.after)),
            TextDifference("path", old.reasoned("path"), new.reasoned("path")),
            TextDifference("lane", old.reasoned("lane"), new.reasoned("lane")),
            TextDifference("bytes are", old.size_of, new.size_of),
            TextDifference("engine", old.engine(exactly=False), new.engine(exactly=False)),
            TextDifference("machine", old.machine, new.machine),
            TextDifference("declared", old.declaration, new.declaration),
            *(TextDifference(name, old.versions.get(name, ""), new.versions.get(name, ""))
              for name in dict.fromkeys([*old.versions, *new.versions])),
        ]  # fmt: skip
        return [item for item in differences if item.before or item.after]

    @property
    def settings(self) -> list[TextDifference]:
        """The Spark settings that differ; empty unless both runs had a session."""
        old, new = RunFigures.of(self.before).settings, RunFigures.of(self.after).settings
        if not old or not new:
            return []
        return [
            TextDifference(name, old.get(name, "(not set)"), new.get(name, "(not set)"))
            for name in sorted({*old, *new})
            if old.get(name) != new.get(name)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as a dict that can be written as JSON."""
        return {
            "before": self.before.run_id,
            "after": self.after.run_id,
            "summary": self.summary(),
            "figures": [item.to_dict() for item in self.number_differences],
            "words": [item.to_dict() for item in self.text_differences],
            "settings": [item.to_dict() for item in self.settings],
        }

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return the rows of the printed table: all numbers, and the texts that changed."""
        table = [("started", format_local_time(self.before.started_at), format_local_time(self.after.started_at), "")]
        table += [
            (item.what, _format_value(item.before, item.unit), _format_value(item.after, item.unit), _change(item))
            for item in self.number_differences
        ]
        return table + [(item.what, item.before, item.after, "changed") for item in self._changed()]

    def unchanged(self) -> list[str]:
        """Return the names of the texts that are equal in both runs."""
        return [item.what for item in self.text_differences if item.before == item.after]

    def summary(self) -> str:
        """Return one sentence on what changed."""
        sentences = [_durations(self.before, self.after, self.number_differences)]
        rows = next((item for item in self.number_differences if item.what == "rows"), None)
        if rows is not None and rows.before and rows.after is not None and abs(rows.after / rows.before - 1) >= 0.1:
            sentences.append(f"{rows.after / rows.before:.1f} times the rows")
        changed = [item.what for item in self._changed() if item.what != "pipeline"]
        if changed:
            shown = changed[:5] + ([f"{len(changed) - 5} more"] if len(changed) > 5 else [])
            sentences.append(f"changed: {', '.join(shown)}")
        return "; ".join(sentences)

    def _changed(self) -> list[TextDifference]:
        return [item for item in [*self.text_differences, *self.settings] if item.is_changed]


def _step(figures: RunFigures, step: str) -> float | None:
    """Return the seconds of a step: 0 if a run with recorded steps lacks it, None for a run without recorded steps."""
    return figures.steps.get(step, 0.0) if figures.steps else None


def _sizes(old: RunFigures, new: RunFigures) -> Iterator[NumberDifference]:
    """Yield the byte numbers, unless one run measured Arrow batches and the other files, which cannot be compared."""
    if old.size_of == new.size_of or old.size is None or new.size is None:
        yield NumberDifference("bytes", "B", old.size, new.size)
        yield NumberDifference("bytes/s", "B/s", old.bytes_per_second, new.bytes_per_second)


def _durations(before: RunRecord, after: RunRecord, figures: list[NumberDifference]) -> str:
    took, *rest = figures if figures and figures[0].what == "took" else [NumberDifference("took", "s", None, None)]
    first, second = short_run_id(before.run_id), short_run_id(after.run_id)
    if took.before is None or took.after is None:
        return f"{second if took.after is None else first} has not finished"
    change = took.after - took.before
    if abs(change) <= max(_SAME_SECONDS, _SAME_SHARE * took.before):
        return f"both took about as long: {format_step_seconds(took.before)} and {format_step_seconds(took.after)}"
    word = "longer" if change > 0 else "less"
    sentence = f"{second} took {format_step_seconds(abs(change))} {word} than {first}"
    steps = [item for item in rest if item.unit == "s" and item.what != "cpu" and item.change is not None]
    largest = max(steps, key=lambda item: (item.change or 0.0) * (1 if change > 0 else -1), default=None)
    if largest is not None and largest.change is not None and largest.change * change > 0:
        sentence += f", mainly in {largest.what} ({_signed(largest.change, format_step_seconds)})"
    return sentence


def _format_value(value: float | None, unit: str) -> str:
    if value is None:
        return _UNKNOWN
    if unit == "s":
        return format_step_seconds(value)
    if unit in ("B", "B/s"):
        return format_bytes(value) + unit[1:]
    return f"{value:,.1f}" if unit == "cores" else f"{value:,.0f}"


def _change(item: NumberDifference) -> str:
    if item.change is None:
        return ""
    text = _signed(item.change, lambda value: _format_value(value, item.unit))
    share = 100 * item.change / item.before if item.before else 0.0
    return f"{text} ({share:+.0f} %)" if abs(share) >= 0.5 else text


def _signed(change: float, show: Callable[[float], str]) -> str:
    if not change:
        return "="
    return f"{'+' if change > 0 else '-'}{show(abs(change))}"
