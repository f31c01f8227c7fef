"""The commits of a Delta table by their time, where some of them do not say when they were made."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from ematix_flow import DeltaLocalConnection
from ematix_flow.backends.delta.stream import DeltaStream
from ematix_flow.contract.stream import StreamRead

READ = StreamRead("events", "raw.orders", "checkpoint")
FIRST = datetime(2026, 3, 1, tzinfo=timezone.utc)


@pytest.fixture
def stream(tmp_path: Path) -> DeltaStream:
    """A table with a commit on each of four days; the third one does not say when."""
    log = tmp_path / "raw" / "orders" / "_delta_log"
    log.mkdir(parents=True)
    for version in range(4):
        at = (FIRST + timedelta(days=version)).timestamp()
        info = {"operation": "WRITE"} if version == 2 else {"operation": "WRITE", "timestamp": int(at * 1000)}
        add = {"path": f"{version}.parquet", "dataChange": True, "stats": '{"numRecords": 2}'}
        file = log / f"{version:020}.json"
        file.write_text("\n".join(json.dumps(action) for action in ({"commitInfo": info}, {"add": add})))
        os.utime(file, (at, at))
    return DeltaStream(DeltaLocalConnection("lake", path=str(tmp_path)))


@pytest.mark.parametrize(("days", "version"), [(-1, 0), (0, 0), (0.5, 1), (1.5, 2), (2.5, 3), (3.5, "latest")])
def test_the_first_commit_at_or_after_a_moment_is_found(stream: DeltaStream, days: float, version: int | str) -> None:
    assert stream.offsets_at(READ, FIRST + timedelta(days=days)) == {"version": version}


def test_the_lag_of_a_commit_without_a_time_is_that_of_its_file(stream: DeltaStream) -> None:
    (lag,) = stream.lag(READ, {"reservoirVersion": 2})
    assert lag.rows == 4
    waiting = time.time() - (FIRST + timedelta(days=2)).timestamp()
    assert lag.seconds == pytest.approx(waiting, abs=60)
