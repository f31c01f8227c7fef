"""The cluster of the tests: started by `flow cluster start`, its workers killed and replaced, ended with the run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class TestCluster:
    """A folder of its own: no other cluster of this user is touched."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "home" / ".ematix-flow").mkdir(parents=True)
        cache = os.environ.get("EMATIX_FLOW_CACHE") or str(Path.home() / ".cache" / "ematix-flow")
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "EMATIX_FLOW_TEST_SERVICES"},
            "HOME": str(folder / "home"),
            "EMATIX_FLOW_CACHE": cache,  # the jars are not fetched again
            "EMATIX_FLOW_CLUSTER_DIR": str(folder / "cluster"),
            "EMATIX_FLOW_LOGS_DIR": str(folder / "logs"),
            "EMATIX_FLOW_RUN_LOG_PATH": str(folder / "run_log.db"),
            "EMATIX_FLOW_STAGE_DIR": str(folder / "stage"),
            "EMATIX_FLOW_DRIVER_MEMORY": "1g",
            "EMATIX_FLOW_ENGINE": "distributed",
        }

    def start(self, workers: int = 2) -> dict[str, Any]:
        """The cluster with so many workers; those that died are replaced."""
        told = self.flow("cluster", "start", "--workers", str(workers), "--cores", "1", "--port", "0")
        self.environment["EMATIX_FLOW_MASTER"] = told["address"]
        return told

    def stop(self) -> None:
        self.flow("cluster", "stop")

    def flow(self, *words: str, cwd: Path | None = None, code: int = 0, **more: str) -> Any:
        """A command with --json; what it said."""
        done = self.run(*words, "--json", cwd=cwd, **more)
        assert done.returncode == code, done.stderr + done.stdout
        return json.loads(done.stdout)

    def run(self, *words: str, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "ematix_flow.cli", *words], cwd=cwd or self.folder,
            env={**self.environment, **more}, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    def write_settings(self, text: str) -> None:
        """The [spark] table of every project of this home."""
        (self.folder / "home" / ".ematix-flow" / "connections.toml").write_text(f"[spark]\n{text}\n")

    def secret(self) -> str:
        return (self.folder / "cluster" / "secret").read_text()

    def workers(self) -> list[int]:
        return [worker["pid"] for worker in self.status()["workers"] if worker["alive"]]

    def status(self) -> Any:
        return self.flow("cluster", "status")

    def kill_a_worker(self) -> int:
        """kill -9 of the first worker that runs an executor, and of that executor."""
        for worker in self.workers():
            executors = _children(worker)
            if executors:
                for pid in (worker, *executors):
                    os.kill(pid, signal.SIGKILL)
                return worker
        raise AssertionError("no worker runs an executor")


def bare_python(folder: Path, *, without: tuple[str, ...] = ()) -> Path:
    """A Python with every package of this one but ours, as on a worker that nobody prepared for this product."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if "ematix" not in entry.name and not entry.name.endswith(".pth") and entry.name not in without:
            (site / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def wait_for(is_so: Any, seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def command_lines() -> list[str]:
    """What everybody on this machine can read about every process."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_text(errors="replace"))
        except OSError:
            continue
    return found


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in found for child in file.read_text().split()]


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
