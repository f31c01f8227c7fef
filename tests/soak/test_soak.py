"""A short soak; `python -m tests.soak --runs 2000 --kills 40` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.soaking import PIPELINES, Soak

RUNS, KILLS = 60, 6


@pytest.mark.full("minutes of commands")
def test_runs_whose_engine_is_killed_lose_and_double_nothing(tmp_path: Path) -> None:
    report = Soak(tmp_path, runs=RUNS, kills=KILLS, seed=7).soak()
    assert report.wrong == [], report.shown()
    assert len(report.seconds) == RUNS + len(PIPELINES)
    assert report.kinds["warm"] >= RUNS - KILLS, report.shown()
    assert report.killed >= 1
