"""One sentence on why a run took as long as it did, derived only from its recorded figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ematix_flow.cli.render.figures import LOADING, RunFigures
from ematix_flow.cli.render.report import title_of
from ematix_flow.cli.render.units import format_rate

_MOST = 0.5
_IDLE_CORES = 0.5
_WHAT = {
    "function": "the pipeline's function",
    "plan": "planning (the pipeline's function, the columns of the source)",
    "start": "starting Spark",
    "ensure": "bringing the table to its shape",
    "load": "reading and staging the rows",
    "check": "checking the rows",
    "publish": "publishing",
    "settle": "settling (the history, the stage that is dropped)",
    "transform": "the transforms after the load",
}


def explain_duration(figures: RunFigures, *, failed: bool = False) -> str:
    """Return the sentence; empty for a record without step durations."""
    parts = _combined_steps(figures)
    total = sum(parts.values())
    if not total:
        return ""
    (first, most), *others = sorted(parts.items(), key=lambda item: -item[1])
    until = "until it failed, " if failed else ""
    if most / total >= _MOST or not others:
        sentence = f"{until}most of the time went into {_step_phrase(first, figures)}: {format_percent(most / total)}"
    else:
        second, less = others[0]
        sentence = (
            f"{until}no step took half of the time: {format_percent(most / total)} went into {_step_phrase(first, figures)}, "
            f"{format_percent(less / total)} into {_step_phrase(second, figures)}"
        )
    return "; ".join([sentence, *_reasons_for(first, figures)])


def format_percent(share: float) -> str:
    """Return a share between 0 and 1 as a percentage.

    >>> format_percent(0.624)
    '62 %'
    """
    return f"{share * 100:.0f} %"


def _combined_steps(figures: RunFigures) -> dict[str, float]:
    """Return the seconds per step, with reading and staging merged: Spark reads while it stages."""
    parts = {step: seconds for step, seconds in figures.steps.items() if step not in LOADING}
    return {**parts, **({"load": figures.loading} if figures.loading else {})}


def _step_phrase(part: str, figures: RunFigures) -> str:
    if part == "publish" and len(figures.targets) == 1:
        (target,) = figures.targets
        return f"publishing ({target.get('mode')} in {title_of(str(target.get('target_kind')))})"
    if part == "start" and (figures.session or {}).get("how") == "joined":
        return "joining the engine"
    return _WHAT.get(part, part)


def _reasons_for(part: str, figures: RunFigures) -> list[str]:
    """Return the reasons for the longest part that the figures show."""
    session: Mapping[str, Any] = figures.session or {}
    own_jvm = session.get("kind") == "local" and session.get("engine") != "sail"
    if part == "start" and own_jvm and session.get("how") == "started":
        return ["EMATIX_FLOW_KEEP_WARM=1 leaves an engine running that later runs join"]
    return [*_lane(figures), *_idle_hint(figures)] if part == "load" else []


def _lane(figures: RunFigures) -> list[str]:
    for target in figures.targets:
        if target.get("lane") == "spark" and target.get("lane_reason"):
            reason = str(target["lane_reason"])
            return [
                "the rows went through Spark's rows because " + ("force_lane says so" if reason == "forced" else reason)
            ]
    rate = format_rate(figures.rows, figures.size, figures.loading)
    inside = any(target.get("lane") == "database" for target in figures.targets)
    where = " inside the database" if inside else ""
    return [f"{', '.join(rate)}{where}"] if rate else []


def _idle_hint(figures: RunFigures) -> list[str]:
    """Return a hint when less than half a core was busy; none on path same_db, where the database does the work."""
    cores = figures.cores
    if cores is None or cores >= _IDLE_CORES or any(target.get("path") == "same_db" for target in figures.targets):
        return []
    return [f"this side used {cores:.1f} of a core: it mostly waited, for the source, the target, the disk or its turn"]
