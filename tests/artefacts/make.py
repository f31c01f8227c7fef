"""Make tests/artefacts/<name>.tar.gz: what a version of the product wrote, for the tests of later versions.

    git worktree add --detach /tmp/before COMMIT
    python -m tests.artefacts.make /tmp/before before-issue-15

The first word is a checkout of the version whose artefacts are wanted; its packages come from the environment of this
Python, so that both must have the same lock file. Everything is made in FOLDER, with paths relative to it, under the host
name `maker` and with a cache at a neutral path: the archive names nothing of the machine that made it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.artefacts.arrivals import customers_in, new_file, new_orders, readings

HERE = Path(__file__).resolve().parent
FOLDER = Path("/tmp/flow-artefacts")
CACHE = Path("/tmp/flow-artefacts-cache")
LEFT_OUT = {"pipelines.py", "logs", "home", "stage", "__pycache__", "spark-warehouse", "runs.db-shm"}
COMMAND = "import socket, sys; socket.gethostname = lambda: 'maker'; from ematix_flow.cli import main; sys.exit(main())"
STREAMS = ("per_minute", "events")


class Maker:
    """Runs commands of the other version in the folder of the artefacts."""

    def __init__(self, source: Path) -> None:
        self._environment = {
            **os.environ, "PYTHONPATH": str(source / "src"), "HOME": str(FOLDER / "home"), "EMATIX_FLOW_ENGINE": "local",
            "EMATIX_FLOW_CACHE": str(CACHE), "EMATIX_FLOW_CLASS_ARCHIVE": "off", "EMATIX_FLOW_DRIVER_MEMORY": "1g",
            "EMATIX_FLOW_LOGS_DIR": "logs", "EMATIX_FLOW_STAGE_DIR": "stage", "EMATIX_FLOW_RUN_LOG_PATH": "runs.db",
        }  # fmt: skip

    def flow(self, *words: str, fault: str | None = None) -> None:
        """Run a command to its end, or to the fault point that kills it."""
        print("flow", *words, f"(killed {fault})" if fault else "", flush=True)
        armed = {"EMATIX_FLOW_FAULT": fault} if fault else {}
        ran = subprocess.run(
            [sys.executable, "-c", COMMAND, *words], cwd=FOLDER, env={**self._environment, **armed},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if ran.returncode != (-signal.SIGKILL if fault else 0):
            raise SystemExit(f"exit code {ran.returncode}\n{ran.stdout}\n{ran.stderr}")

    def load(self) -> None:
        """Run every pipeline and every stream."""
        self.flow("run", "--all")
        for name in STREAMS:
            self.flow("consume", name, "--once")


def make(source: Path) -> None:
    """Load two rounds; the third is killed where the target has the rows and nothing else knows it."""
    from ematix_flow.foundation.cache import cache_home

    for path in (FOLDER, CACHE):
        shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(HERE / "project", FOLDER)
    shutil.copytree(cache_home() / "jars", CACHE / "jars")
    maker = Maker(source)
    new_orders(FOLDER, range(1, 6))
    customers_in(FOLDER, {1: "Berlin", 2: "Ulm"}, day=1)
    new_file(FOLDER, "readings", "1.jsonl", readings(("00:05", 1), ("00:40", 2), ("01:10", 4)), '{"sensor": ')
    new_file(FOLDER, "events", "1.jsonl", [{"id": 1, "note": "a"}, {"id": 2, "note": "b"}])
    maker.load()
    new_orders(FOLDER, range(6, 9))
    customers_in(FOLDER, {1: "Paris", 3: "Rome"}, day=2)
    maker.flow("run", "--all")
    new_orders(FOLDER, range(9, 11))
    customers_in(FOLDER, {2: "Oslo"}, day=3)
    new_file(FOLDER, "readings", "2.jsonl", readings(("01:30", 8)), "no JSON either")
    new_file(FOLDER, "events", "2.jsonl", [{"id": 3, "note": "c"}])
    for name in ("orders_to_duckdb", "orders_to_parquet", "history_to_delta"):
        maker.flow("run", name, fault="after_publish")
    maker.flow("consume", "per_minute", "--once", fault="after_fold")
    maker.flow("consume", "events", "--once", fault="after_publish")


def pack(archive: Path) -> None:
    """Write the archive, without what no later version reads."""

    def neutral(item: tarfile.TarInfo) -> tarfile.TarInfo | None:
        item.uid = item.gid = 0
        item.uname = item.gname = ""
        return None if LEFT_OUT & set(Path(item.name).parts[:1]) else item

    with tarfile.open(archive, "w:gz", compresslevel=9) as packed:
        packed.add(FOLDER, arcname=".", filter=neutral)
    print(f"{archive.relative_to(HERE.parent.parent)}: {archive.stat().st_size:,} bytes")


def main(words: list[str]) -> None:
    """Make the artefacts of the checkout `words[0]` and pack them under the name `words[1]`."""
    make(Path(words[0]).resolve())
    pack(HERE / f"{words[1]}.tar.gz")


if __name__ == "__main__":
    main(sys.argv[1:])
