"""Streams that run on while they are watched from outside; a part of cases, not a case."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bench.contestants import bare, consume, product
from bench.ends import names
from bench.ends.postgres import watched_database
from bench.model import Case, Contestant, Goal
from bench.place import FOLDER, Place

MESSAGES, QUIET_SECONDS = 30, 30
_PIPELINE = "kafka_to_pg"


def watched(what: str, *, title: str, goals: tuple[Goal, ...], unit: str, note: str) -> Case:
    """A case of the product and of the bare job, each with a message now and then."""
    bare_job = replace(bare(_PIPELINE, "kafka", "postgres"), variables=(("BENCH_RUNS_ON", "1"),))
    return Case(
        name=f"stream_{what}",
        title=title,
        contestants=(
            _within(what, product(_PIPELINE), consume(_PIPELINE)),
            _within(what, bare_job, bare_job.command),
        ),
        goals=goals,
        is_warm=True,
        steps=_steps,
        prepare=_prepare,
        note=note,
        unit=unit,
    )


def _within(what: str, contestant: Contestant, command: tuple[str, ...]) -> Contestant:
    watch = ("{bin}/python", str(FOLDER / "streams" / "watch.py"), what)
    return replace(contestant, command=(*watch, *command))


def _prepare(place: Place) -> Mapping[str, str]:
    """Less of everything at a small scale, where only the harness itself is tried."""
    share = min(1.0, max(0.2, place.scale))
    return {
        names.SOURCE: place.kafka(),
        "BENCH_MESSAGES": str(round(MESSAGES * share)),
        "BENCH_QUIET_SECONDS": str(round(QUIET_SECONDS * share)),
        **watched_database(place),
    }


def _steps(folder: Path) -> Mapping[str, float]:
    found: dict[str, float] = json.loads((folder / "steps.json").read_text(encoding="utf-8"))
    return found
