"""`flow scheduler` as a user meets it: real processes, a real run log."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scheduler.projects import JobText, Project, overlaps

Make = Callable[..., Project]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Make]:
    made: list[Project] = []

    def make(*jobs: JobText) -> Project:
        made.append(Project(tmp_path, list(jobs)))
        return made[-1]

    yield make
    for item in made:
        item.close()


@pytest.mark.parametrize("executor", ["subprocess://", "subprocess+python://", "inprocess://"])
def test_a_schedule_fires_its_jobs_and_children_follow_their_parents(project: Make, executor: str) -> None:
    made = project(JobText("orders", "*/2 * * * * *"), JobText("revenue", "*/2 * * * * *", depends_on=("orders",)))
    daemon = made.scheduler("--executor", executor)
    made.wait_until(lambda: made.ended("revenue") >= 2, what="the child's second run", seconds=60)
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(20) == 0
    notes = made.notes()
    assert overlaps(notes) == []
    first_parent = next(note.at for note in notes if (note.kind, note.name) == ("end", "orders"))
    first_child = next(note.at for note in notes if (note.kind, note.name) == ("begin", "revenue"))
    assert first_parent < first_child
    slots = made.rows("SELECT pipeline, slot FROM fired_slots WHERE slot LIKE 'cron:%'")
    runs = made.rows("SELECT pipeline, json_extract(extras_json, '$.slot') FROM run_records WHERE status = 'succeeded'")
    assert len(runs) == len(set(runs))
    assert set(runs) <= set(slots)


def test_what_a_run_prints_is_kept_and_followed(project: Make) -> None:
    made = project(JobText("orders", "*/2 * * * * *"))
    daemon = made.scheduler()
    made.wait_until(lambda: made.ended("orders") >= 1, what="a run")
    daemon.send_signal(signal.SIGTERM)
    daemon.wait(20)
    run_id = made.rows("SELECT run_id FROM run_records WHERE status = 'succeeded'")[0][0]
    assert "hello from orders" in made.flow("logs", run_id[:8], "--follow").stdout
    assert made.json("logs", run_id, "--tail", "1")["run_id"] == run_id
    assert made.flow("logs", "nonsense", check=False).returncode == 2
    lines = made.flow("runs", "tail", "--for", "0", "-n", "5").stdout
    assert "orders" in lines
    assert "succeeded" in lines


def test_a_second_scheduler_waits_and_takes_over_when_the_first_is_killed(project: Make) -> None:
    made = project(JobText("orders", "*/2 * * * * *"))
    first = made.scheduler()
    made.wait_until(lambda: any(item["event"] == "leading" for item in made.events()), what="leading")
    made.scheduler()
    made.wait_until(lambda: any(item["event"] == "standby" for item in made.events()), what="standby")
    made.wait_until(lambda: made.ended("orders") >= 1, what="a run")
    first.kill()
    first.wait()
    before = made.ended("orders")
    made.wait_until(lambda: made.ended("orders") >= before + 2, what="runs of the second scheduler")
    assert sum(item["event"] == "leading" for item in made.events()) == 2
    assert overlaps(made.notes()) == []


def test_a_leader_that_was_stopped_and_wakes_up_fires_nothing_any_more(project: Make) -> None:
    made = project(JobText("orders", "* * * * * *"))
    first = made.scheduler("--leader-lease-seconds", "2")
    made.wait_until(lambda: made.ended("orders") >= 1, what="a run")
    made.scheduler("--leader-lease-seconds", "2")
    first.send_signal(signal.SIGSTOP)
    leaders = lambda: [item for item in made.events() if item["event"] == "leading"]  # noqa: E731
    made.wait_until(lambda: len(leaders()) == 2, what="the second one to lead")
    first.send_signal(signal.SIGCONT)
    made.wait_until(
        lambda: any(item["event"] == "standby" and "lost" in item["text"] for item in made.events()),
        what="the first one to stand down",
    )
    time.sleep(3)
    slots = made.rows("SELECT count(*), count(DISTINCT digest) FROM fired_slots WHERE slot LIKE 'cron:%'")
    runs = made.rows("SELECT json_extract(extras_json, '$.slot') FROM run_records")
    assert slots[0][0] == slots[0][1]
    assert len(runs) == len(set(runs))
    assert overlaps(made.notes()) == []


def test_a_job_that_fails_is_tried_again_and_then_given_up_until_a_person_says_so(project: Make) -> None:
    made = project(JobText("orders", "0 0 1 1 *", retry={"max_attempts": 2, "base_secs": 0}))
    (made.folder / "orders.broken").touch()
    daemon = made.scheduler()
    run_id = made.json("retry", "orders", "--queue")["run_id"]
    made.wait_until(lambda: made.json("status")[0]["gave_up"], what="giving up")
    assert made.rows(f"SELECT status, attempt FROM run_records WHERE run_id = '{run_id}'") == [("failed", 1)]
    assert made.rows("SELECT max(attempt) FROM run_records") == [(2,)]
    (made.folder / "orders.broken").unlink()
    made.wait_until(lambda: "will carry it out" in made.flow("retry", "orders").stdout, what="a leader", seconds=5)
    made.wait_until(lambda: made.ended("orders") >= 1, what="the run that a person asked for")
    made.wait_until(lambda: not made.json("status")[0]["gave_up"], what="health")
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(20) == 0


def test_a_paused_job_is_not_fired_until_it_is_unpaused(project: Make) -> None:
    made = project(JobText("orders", "* * * * * *"), JobText("prices", "* * * * * *"))
    made.flow("pause", "orders")
    made.scheduler()
    made.wait_until(lambda: made.ended("prices") >= 2, what="the other job")
    assert made.ended("orders") == 0
    assert "paused" in made.flow("status").stdout
    made.flow("unpause", "orders")
    made.wait_until(lambda: made.ended("orders") >= 1, what="the job after its pause")


@pytest.mark.parametrize("executor", ["subprocess://", "inprocess://"])
def test_a_run_is_cancelled_by_its_id(project: Make, executor: str) -> None:
    made = project(JobText("orders", seconds=60 if executor.startswith("sub") else 3))
    made.scheduler("--executor", executor)
    run_id = made.json("retry", "orders", "--queue")["run_id"]
    made.wait_until(lambda: any(note.kind == "begin" for note in made.notes()), what="the run's begin")
    made.flow("runs", "cancel", run_id[:8])
    asked = f"SELECT status FROM run_records WHERE run_id = '{run_id}'"
    if executor.startswith("sub"):
        made.wait_until(lambda: made.rows(asked) == [("cancelled",)], what="the cancelled record")
        assert made.ended("orders") == 0
    else:  # a plain function has no steps to stop between: it ends, and the scheduler lives on
        made.wait_until(lambda: made.rows(asked)[0][0] in ("cancelled", "succeeded"), what="the end")
        assert made.started[0].poll() is None


def test_a_run_that_waits_is_taken_out_of_the_queue(project: Make) -> None:
    made = project(JobText("orders"))
    run_id = made.json("retry", "orders", "--queue")["run_id"]
    assert "will not" in made.flow("runs", "cancel", run_id).stdout
    assert made.rows("SELECT status FROM run_records") == [("cancelled",)]
    done = made.flow("runs", "cancel", run_id, check=False)
    assert done.returncode == 3
    assert "has ended" in done.stderr


def test_a_worker_that_is_killed_is_a_failed_attempt_and_is_tried_again(project: Make) -> None:
    made = project(JobText("orders", seconds=5, retry={"max_attempts": 3, "base_secs": 0}))
    made.scheduler()
    made.json("retry", "orders", "--queue")
    made.wait_until(lambda: bool(made.notes()), what="the first attempt")
    os.kill(made.notes()[0].pid, signal.SIGKILL)
    made.wait_until(lambda: made.ended("orders") == 1, what="the second attempt")
    expected = [(1, "failed", "its worker ended without a word"), (2, "succeeded", None)]
    asked = "SELECT attempt, status, error_summary FROM run_records ORDER BY started_at"
    made.wait_until(lambda: made.rows(asked) == expected, what="both records", seconds=10)
    assert overlaps(made.notes()) == []


def test_a_worker_that_never_begins_is_given_up_after_three_attempts(project: Make) -> None:
    made = project(JobText("orders"))
    made.scheduler()
    made.wait_until(lambda: any(item["event"] == "leading" for item in made.events()), what="leading")
    broken = (made.folder / "pipelines.py").read_text()
    (made.folder / "pipelines.py").write_text("raise RuntimeError('half saved')\n" + broken)
    from ematix_flow.run_log.schedule import Action
    from ematix_flow.run_log.urls import from_url

    log = from_url(str(made.folder / "run_log.db"))
    log.enqueue(Action("run", "orders"))
    made.wait_until(lambda: made.rows("SELECT status FROM run_records") == [("failed",)], what="giving up", seconds=60)
    summary: str = made.rows("SELECT error_summary FROM run_records")[0][0]
    assert "no worker began the run in 3 attempts" in summary
    log.close()


def test_at_most_so_many_run_at_once(project: Make) -> None:
    made = project(*(JobText(f"job_{number}", seconds=0.5) for number in range(6)))
    for number in range(6):
        made.json("retry", f"job_{number}", "--queue")
    made.scheduler("--max-concurrent", "2")
    made.wait_until(lambda: sum(note.kind == "end" for note in made.notes()) == 6, what="six runs", seconds=60)
    most = current = 0
    for note in sorted(made.notes(), key=lambda item: item.at):
        current += 1 if note.kind == "begin" else -1
        most = max(most, current)
    assert most == 2


def test_without_a_scheduler_a_person_s_request_is_executed_here_and_now(project: Make) -> None:
    made = project(JobText("orders"))
    (made.folder / "orders.broken").touch()
    assert made.flow("run", "orders", check=False).returncode == 1
    run_id: Any = made.rows("SELECT run_id FROM run_records")[0][0]
    (made.folder / "orders.broken").unlink()
    assert made.flow("runs", "resume", run_id[:8]).returncode == 0
    assert made.ended("orders") == 1
    made.flow("runs", "restart", run_id[:8])
    assert made.ended("orders") == 2
    assert made.flow("runs", "restart", run_id[:8], "--queue").returncode == 0
    assert made.ended("orders") == 2
    made.flow("run-due")
    assert made.ended("orders") == 3


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--executor", "subproces://"), "subprocess"),
        (("--no-run-log",), "run log"),
        (("--run-log", "memory://"), "memory"),
        (("--run-log", "postgres://nobody:nothing@127.0.0.1:1/none"), "127.0.0.1"),
    ],
)
def test_what_cannot_work_is_reported_in_one_sentence(project: Make, words: tuple[str, ...], told: str) -> None:
    made = project(JobText("orders"))
    done = made.flow("scheduler", "--max-iterations", "1", *words, check=False)
    assert done.returncode in (2, 5)
    assert told in done.stderr
    assert "Traceback" not in done.stderr
