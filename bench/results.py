"""The results: medians and spread of every contestant, the ratio for every goal, kept in one file over many invocations."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bench import envs
from bench.machine import Machine
from bench.model import Case, Goal
from bench.place import Place
from bench.runner import Options, Outcome

Result = dict[str, Any]
PER_QUERY, WALL = "geometric mean per query", "wall"


def summary(case: Case, place: Place, options: Options, outcomes: Mapping[str, Outcome], machine: Machine) -> Result:
    """One case as plain data."""
    contestants = {name: _contestant(outcome, machine) for name, outcome in outcomes.items()}
    return {
        "title": case.title,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "scale": place.scale,
        "rows": place.rows(case.table) if case.table else None,
        "repeats": options.repeats,
        "warm": case.is_warm,
        "unit": case.unit or (PER_QUERY if case.steps else WALL),
        "machine": machine.facts(),
        "note": case.note,
        "contestants": contestants,
        "goals": [_goal(goal, contestants) for goal in case.goals],
    }


def unavailable(
    case: Case, place: Place, options: Options, machine: Machine, reason: str, *, failed: bool = False
) -> Result:
    """A case that could not be prepared, or one that failed in the harness itself."""
    outcomes = {
        item.name: Outcome(item, problem=reason, is_available=failed)
        for item in case.contestants
        if options.takes(item)
    }
    return summary(case, place, options, outcomes, machine)


def merge(file: Path, new: Mapping[str, Result], *, replace: bool) -> tuple[dict[str, Result], list[str]]:
    """Put new cases among the kept ones; one of a larger scale or with more contestants stays unless it is replaced."""
    kept = read(file)
    refused = [name for name, result in new.items() if not replace and name in kept and _says_more(kept[name], result)]
    kept |= {name: result for name, result in new.items() if name not in refused}
    write(file, kept)
    return kept, refused


def _says_more(kept: Result, new: Result) -> bool:
    return kept["scale"] > new["scale"] or bool(kept["contestants"].keys() - new["contestants"].keys())


def read(file: Path) -> dict[str, Result]:
    """The kept cases by name."""
    found: dict[str, Result] = json.loads(file.read_text(encoding="utf-8"))["cases"] if file.is_file() else {}
    return found


def write(file: Path, cases: Mapping[str, Result]) -> None:
    """Keep them, in the order of their names so that a change is easy to see."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"cases": dict(sorted(cases.items()))}, indent=1, ensure_ascii=False)
    file.write_text(text + "\n", encoding="utf-8")


def geometric_mean(values: Iterable[float]) -> float:
    """The mean that treats twice as fast and half as fast alike."""
    known = list(values)
    return math.exp(sum(math.log(value) for value in known) / len(known)) if known else 0.0


def _contestant(outcome: Outcome, machine: Machine) -> Result:
    contestant = outcome.contestant
    runs = [] if outcome.problem else outcome.runs  # who failed once gets no figure
    steps = _medians([run.steps for run in runs])
    return {
        "label": contestant.label,
        "version": envs.version(contestant.home) or machine.version_of(contestant.name),
        "note": contestant.note,
        "problem": outcome.problem,
        "available": outcome.is_available,
        "equal": bool(runs) and not outcome.problem and not any(run.stopped for run in runs),
        "stopped": any(run.stopped for run in runs),
        "figure": round(geometric_mean(steps.values()), 4) if steps else _middle([run.wall for run in runs]),
        "wall": _spread([run.wall for run in runs]),
        "cpu": _spread([run.cpu for run in runs]),
        "peak_mb": round(max((run.peak_mb for run in runs), default=0)),
        "load": _middle([run.load for run in runs]),
        "left_running": max((run.left_running for run in runs), default=0),
        "warmups": [round(wall, 3) for wall in outcome.warmups],
        "steps": steps,
        "profile": _medians([run.profile for run in runs]),
        "rows": outcome.found.rows if outcome.found else None,
        "checksum": outcome.found.checksum if outcome.found else None,
    }


def _medians(measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of each value that every run has."""
    names = [name for name in (measured[0] if measured else {}) if all(name in found for found in measured)]
    return {name: round(statistics.median(found[name] for found in measured), 4) for name in names}


def _goal(goal: Goal, contestants: Mapping[str, Result]) -> Result:
    ours, peer = contestants.get(goal.who), contestants.get(goal.peer)
    base = {
        "text": goal.text,
        "who": goal.who,
        "peer": goal.peer,
        "at_least": goal.at_least,
        "at_most_seconds": goal.at_most_seconds,
    }
    plain = base | {"ratio": None, "cpu_ratio": None}
    if goal.at_most_more:
        more = _difference(ours, peer)
        return plain | {"more": more, "met": None if more is None else more <= goal.at_most_more}
    if goal.at_most_times:
        times = _ratio(peer, ours)
        return plain | {"times": times, "met": None if times is None else times <= goal.at_most_times}
    most = goal.at_most_seconds or goal.at_most
    if most:
        figure = ours["figure"] if ours is not None else None
        return plain | {"peer": None, "met": None if figure is None else figure <= most}
    ratio, cpu_ratio = _ratio(ours, peer), _ratio(ours, peer, "cpu")
    is_bound = bool(peer and peer["stopped"])
    is_met = None if ratio is None else ratio >= goal.at_least
    return base | {
        "ratio": ratio,
        "cpu_ratio": cpu_ratio,
        "is_lower_bound": is_bound,
        "met": None if is_bound and not is_met else is_met,
    }


def _difference(ours: Result | None, peer: Result | None) -> float | None:
    if not ours or not peer or ours["figure"] is None or peer["figure"] is None:
        return None
    return round(ours["figure"] - peer["figure"], 3)


def _ratio(ours: Result | None, peer: Result | None, what: str = "figure") -> float | None:
    """How many times as long the peer took."""
    if not ours or not peer:
        return None
    own, other = ours[what], peer[what]
    if what == "cpu":
        own, other = own and own["median"], other and other["median"]
    return round(other / own, 3) if own and other else None


def _spread(values: list[float]) -> Result | None:
    if not values:
        return None
    rounded = [round(value, 3) for value in values]
    return {"median": _middle(values), "min": min(rounded), "max": max(rounded), "all": rounded}


def _middle(values: list[float]) -> float | None:
    return round(statistics.median(values), 3) if values else None
