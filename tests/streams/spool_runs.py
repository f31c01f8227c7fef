"""Runs of `spool_job`, here and in processes of their own, for the tests of every broker behind a spool."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ematix_flow.engine.session.session import spark_session
from tests.streams.spool_job import Job, Target, carry

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 240


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The engine's own session; its log stays out of the person's folders."""
    patch = pytest.MonkeyPatch()
    patch.setenv("EMATIX_FLOW_LOGS_DIR", str(tmp_path_factory.mktemp("logs")))
    yield spark_session()
    patch.undo()


def run(job: Job) -> None:
    """To its good end, in this process."""
    with running(job) as wait:
        wait()


@contextmanager
def running(job: Job) -> Iterator[Callable[[], None]]:
    """Meanwhile in this process; what is given waits for the end, and raises what was wrong."""
    stop = threading.Event()
    with ThreadPoolExecutor(1) as thread:  # only a main thread would listen to signals
        ended = thread.submit(carry, job, stop.is_set)
        try:
            yield lambda: ended.result(SECONDS)
        finally:
            stop.set()


def launch(job: Job) -> subprocess.Popen[str]:
    """In a process of its own."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.streams.spool_job", job.dump()], cwd=ROOT, env=environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def run_until_killed(job: Job, point: str) -> None:
    """Until it kills itself at the point."""
    process = launch(replace(job, die=point))
    try:
        said, _ = process.communicate(timeout=SECONDS)
    finally:
        kill(process)
    assert process.returncode == -signal.SIGKILL, said


def kill(process: subprocess.Popen[str]) -> None:
    """As a power cut would."""
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def wait_for(is_so: Callable[[], bool], *, seconds: float = 90.0, what: str = "it") -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.1)


def texts(target: Target) -> Counter[str]:
    """Every value that arrived, and how often."""
    return Counter(row["value"] for row in target.rows())


def once(values: list[str]) -> Counter[str]:
    """Each of them one time."""
    return Counter(dict.fromkeys(values, 1))


__all__ = ["kill", "launch", "once", "run", "run_until_killed", "running", "spark", "texts", "wait_for"]
