"""The engine's Spark session over the life of a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ematix_flow

pytestmark = pytest.mark.full

LATER_DELTA = """
import sys
from ematix_flow import spark_session

first = spark_session()
assert first.range(3).count() == 3
second = spark_session({"delta"})
second.range(4).write.format("delta").save(sys.argv[1])
assert second.read.format("delta").load(sys.argv[1]).count() == 4
assert spark_session() is second
"""


def test_a_process_that_needs_more_jars_later_gets_them(tmp_path: Path) -> None:
    source = str(Path(ematix_flow.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", LATER_DELTA, str(tmp_path / "table")],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=400,
        env={**os.environ, "PYTHONPATH": source, "EMATIX_FLOW_LOGS_DIR": str(tmp_path / "logs"),
             "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "table" / "_delta_log").is_dir()
