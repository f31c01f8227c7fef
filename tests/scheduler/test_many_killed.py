"""Two schedulers, many jobs, kill -9 of either every few seconds: every slot once, nothing lost, nothing twice at once."""

from __future__ import annotations

import random
import signal
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from ematix_flow.scheduler import cron
from ematix_flow.scheduler.due import cron_slot
from tests.scheduler.projects import JobText, Project, overlaps

JOBS, SECONDS = 200, 120
_HEAD_START = 6


def _schedules(began: datetime) -> list[str]:
    """Each job once in the time of the test, spread over its seconds: a slot that comes while the one before still runs
    would take its place, as it should."""
    found = []
    for number in range(JOBS):
        at = began + timedelta(seconds=_HEAD_START + number * (SECONDS - _HEAD_START) / JOBS)
        found.append(f"{at.second} {at.minute} {at.hour} * * *")
    return found


@pytest.mark.full("two minutes; tests/scheduler/test_scheduler.py kills and stops leaders")
@pytest.mark.parametrize("executor", ["subprocess://"])
def test_every_slot_is_fired_once_while_schedulers_die(tmp_path: Path, executor: str) -> None:
    schedules = _schedules(datetime.now(timezone.utc))
    jobs = [JobText(f"job_{number}", schedule, seconds=0.1) for number, schedule in enumerate(schedules)]
    made = Project(tmp_path, jobs)
    chance = random.Random(20261116)
    kills = 0
    try:
        for _ in range(2):
            made.scheduler("--executor", executor, "--leader-lease-seconds", "5")
        made.wait_until(lambda: any(item["event"] == "leading" for item in made.events()), what="leading")
        began = datetime.now(timezone.utc)
        while (datetime.now(timezone.utc) - began).total_seconds() < SECONDS:
            time.sleep(chance.uniform(1.5, 4))
            victims = [number for number, process in enumerate(made.started) if process.poll() is None]
            made.started[chance.choice(victims)].kill()
            kills += 1
            made.scheduler("--executor", executor, "--leader-lease-seconds", "5")
        ended = datetime.now(timezone.utc)
        expected = {
            (job.name, cron_slot(moment)) for job in jobs for moment in _moments(str(job.schedule), began, ended)
        }
        assert len(expected) >= JOBS * 0.7
        made.wait_until(lambda: _succeeded(made) >= expected, what="every slot's run", seconds=120)
        for process in made.started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(30)
    finally:
        made.close()
    assert kills >= SECONDS // 5
    runs = made.rows("SELECT pipeline, json_extract(extras_json, '$.slot'), status FROM run_records")
    assert len({run[:2] for run in runs}) == len(runs), "a slot has two runs"
    assert {run[2] for run in runs} <= {"succeeded", "running", "requested"}
    assert overlaps(made.notes()) == []
    begun = sum(note.kind == "begin" for note in made.notes())
    assert begun == sum(run[2] != "requested" for run in runs), "a run began twice"


def _moments(schedule: str, began: datetime, ended: datetime) -> list[datetime]:
    """When the schedule fired while schedulers were at work."""
    found = []
    at = began
    while True:
        following = cron.next_fire(schedule, at)
        if following is None or following > ended - timedelta(seconds=2):
            return found
        found.append(following)
        at = following


def _succeeded(made: Project) -> set[tuple[str, str]]:
    rows = made.rows("SELECT pipeline, json_extract(extras_json, '$.slot') FROM run_records WHERE status = 'succeeded'")
    return {(name, slot) for name, slot in rows}
