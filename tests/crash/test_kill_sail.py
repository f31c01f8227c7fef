"""kill -9 on the native engine, where the token of a Delta commit is the product's own business."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
ROWS = 2000


def flow_run(folder: Path, name: str, *, rows: int, fault: str | None = None) -> subprocess.CompletedProcess[str]:
    """`flow run` in a process of its own."""
    environment = {
        **os.environ,
        "CRASH_TARGET": f"delta|{folder / 'lake'}",
        "CRASH_ROWS": str(rows),
        "HOME": str(folder),
        "EMATIX_FLOW_ENGINE": "sail",
        "EMATIX_FLOW_RUN_LOG_PATH": str(folder / "run_log.db"),
        "EMATIX_FLOW_STAGE_DIR": str(folder / "stage"),
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
    }
    environment.pop("EMATIX_FLOW_FAULT", None)
    if fault:
        environment["EMATIX_FLOW_FAULT"] = fault
    command = [sys.executable, "-m", "ematix_flow.cli", "run", "--module", "tests.crash.native_pipelines", name]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


def found(folder: Path) -> list[tuple[int, str]]:
    """Every row, by a client that is not the engine's."""
    from deltalake import DeltaTable

    path = str(folder / "lake" / "crash" / "numbers")
    if not DeltaTable.is_deltatable(path):
        return []
    rows: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table(columns=["n", "text"]).to_pylist()
    return sorted((row["n"], row["text"]) for row in rows)


def tokens(folder: Path) -> list[tuple[str, int]]:
    """The tokens in the table's log, in the order of its commits."""
    log = sorted((folder / "lake" / "crash" / "numbers" / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for file in log for line in file.read_text().splitlines()]
    return [(line["txn"]["appId"], line["txn"]["version"]) for line in lines if "txn" in line]


def rows_of(count: int, *, mark: str = "row") -> list[tuple[int, str]]:
    return [(number, f"{mark} {number}") for number in range(count)]


@pytest.mark.parametrize("point", ["mid_stage", "before_publish", "after_publish"])
@pytest.mark.parametrize("name", ["append", "merge"])
def test_a_run_killed_on_the_native_engine_can_simply_be_run_again(tmp_path: Path, name: str, point: str) -> None:
    old: list[tuple[int, str]] = []
    if name == "merge":  # an update of half the rows, not the first load
        first = flow_run(tmp_path, name, rows=ROWS // 2)
        assert first.returncode == 0, first.stderr
        old = rows_of(ROWS // 2, mark=f"of {ROWS // 2}")
    new = rows_of(ROWS, mark=f"of {ROWS}")
    killed = flow_run(tmp_path, name, rows=ROWS, fault=point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert found(tmp_path) == (new if point == "after_publish" else old)
    again = flow_run(tmp_path, name, rows=ROWS)
    assert again.returncode == 0, again.stderr
    assert found(tmp_path) == new
    assert [version for _, version in tokens(tmp_path)] == list(range(1, len(tokens(tmp_path)) + 1))
