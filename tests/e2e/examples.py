"""An example in a folder of its own, run as its README says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb

_ALL = Path(__file__).resolve().parents[2] / "examples"


class Example:
    """A copy of one of the examples."""

    def __init__(self, name: str, folder: Path) -> None:
        self.place = folder / name
        shutil.copytree(_ALL / name, self.place)
        self._environment = {
            **os.environ, "EMATIX_FLOW_RUN_LOG_PATH": str(folder / "run_log.db"), "HOME": str(folder),
        }  # fmt: skip
        self._environment.setdefault("EMATIX_FLOW_CACHE", str(Path.home() / ".cache" / "ematix-flow"))

    def python(self, *words: str) -> str:
        """What a program says."""
        ran = subprocess.run(
            [sys.executable, *words], cwd=self.place, env=self._environment, capture_output=True, text=True, timeout=400,
            check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def flow(self, *words: str) -> str:
        """What a command says."""
        return self.python("-m", "ematix_flow.cli", *words)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """What the warehouse holds."""
        with duckdb.connect(str(self.place / "warehouse.duckdb"), read_only=True) as client:
            return client.execute(sql).fetchall()
