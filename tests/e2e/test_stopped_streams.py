"""`flow consume` that is ended in the middle of a long micro-batch: it stops in order, or says in a sentence why not."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.harness.arrivals import put_whole

ROOT = Path(__file__).resolve().parents[2]
STREAM = """
name = "events"
source_query = "events"
checkpoint = "checkpoint"

[source]
kind = "object_store_local"
path = "incoming"
format = "json_lines"

[target]
kind = "sqlite"
path = "shop.db"

[target.table]
schema = "main"
name = "events"

[transform]
sql = "SELECT n, reflect('java.lang.Thread', 'sleep', 5000L) AS slept FROM source"
"""


@pytest.fixture
def consuming(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A stream in the middle of its first micro-batch, in a process group of its own."""
    (tmp_path / "pipeline.toml").write_text(STREAM)
    (tmp_path / "incoming" / "events").mkdir(parents=True)
    put_whole(tmp_path / "incoming" / "events" / "1.jsonl", '{"n": 1}\n')
    homes = {
        name: str(tmp_path / place)
        for name, place in {
            "EMATIX_FLOW_RUN_LOG_PATH": "runs.db", "EMATIX_FLOW_LOGS_DIR": "logs", "EMATIX_FLOW_STAGE_DIR": "stage",
        }.items()
    }  # fmt: skip
    env = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH") or str(ROOT / "src"), **homes}
    process = subprocess.Popen(
        [sys.executable, "-m", "ematix_flow.cli", "consume", "--once"], cwd=tmp_path, env=env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    eventually(lambda: is_writing(tmp_path / "shop.db") or process.poll() is not None)
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def eventually(holds: Callable[[], bool], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.1)


def is_writing(shop: Path) -> bool:
    """Whether the load has begun, for which the tables of tokens are made; its rows take five seconds more."""
    with closing(sqlite3.connect(shop)) as found:
        return bool(found.execute("SELECT 1 FROM sqlite_master WHERE name LIKE '%commits'").fetchall())


def jvm_of(process: subprocess.Popen[str]) -> int:
    found = subprocess.run(["pgrep", "-P", str(process.pid), "java"], capture_output=True, text=True, check=True)
    return int(found.stdout.split()[0])


def test_sigterm_to_its_whole_group_lets_the_micro_batch_end(consuming: subprocess.Popen[str], tmp_path: Path) -> None:
    os.killpg(consuming.pid, signal.SIGTERM)
    _, err = consuming.communicate(timeout=120)
    assert (consuming.returncode, "Traceback" in err) == (0, False), err
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        assert shop.execute("SELECT n FROM events").fetchall() == [(1,)]


def test_an_engine_that_is_killed_is_reported_in_a_sentence(consuming: subprocess.Popen[str]) -> None:
    os.kill(jvm_of(consuming), signal.SIGKILL)
    _, err = consuming.communicate(timeout=120)
    assert consuming.returncode == 1
    assert "the Spark engine went away in the middle of the run" in err
    assert "not expected" not in err
    assert "Traceback" not in err
