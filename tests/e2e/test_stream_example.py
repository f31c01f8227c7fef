"""The example of a stream does what its README says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "stream"


def test_readings_arrive_and_the_next_start_goes_on(tmp_path: Path) -> None:
    place = tmp_path / "stream"
    shutil.copytree(EXAMPLE, place)
    environment = {**os.environ, "EMATIX_FLOW_RUN_LOG_PATH": str(tmp_path / "run_log.db"), "HOME": str(tmp_path)}
    environment.setdefault("EMATIX_FLOW_CACHE", str(Path.home() / ".cache" / "ematix-flow"))

    def done(*words: str) -> str:
        ran = subprocess.run(
            [sys.executable, *words],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    for files in (1, 2):
        done("more.py", "100")
        said = done("-m", "ematix_flow.cli", "consume", "--module", "readings", "--once")
        assert "100 rows in 1 batches" in said
        with duckdb.connect(str(place / "warehouse.duckdb"), read_only=True) as client:
            found = client.execute("SELECT count(*), min(celsius), max(celsius) FROM main.readings").fetchone()
        assert found == (100 * files, 10.0, 20.6)
    assert "readings" in done("-m", "ematix_flow.cli", "stream", "status", "readings", "--module", "readings")
