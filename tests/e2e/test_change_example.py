"""The example of change data does what its README says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "cdc-debezium"


def test_the_mirror_follows_chapter_by_chapter(tmp_path: Path) -> None:
    place = tmp_path / "mirror"
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
            timeout=400,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def chapter() -> dict[int, tuple[Any, ...]]:
        done("change.py")
        done("-m", "ematix_flow.cli", "consume", "--module", "mirror", "--once")
        with duckdb.connect(str(place / "warehouse.duckdb"), read_only=True) as client:
            rows = client.execute("SELECT id, name, city, deleted_at IS NOT NULL FROM main.customers").fetchall()
        return {row[0]: row[1:] for row in rows}

    first = {1: ("Ada", "London", False), 2: ("Blaise", "Paris", False), 3: ("Carl", "Göttingen", False)}
    assert chapter() == first
    assert chapter() == {**first, 1: ("Ada", "London", True), 2: ("Blaise", "Clermont", False)}
    assert chapter() == {**first, 1: ("Ada", "Turin", False), 2: ("Blaise", "Clermont", False)}
    assert "Clermont" in done("show.py")
