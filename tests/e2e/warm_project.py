"""A project whose commands keep an engine warm, in a folder of its own."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

PIPELINES = """
from typing import Annotated
from ematix_flow import BigInt, ObjectStoreLocalConnection, SQLiteConnection, Text, Timestamp, ematix, pk

shop = SQLiteConnection(name="shop", path="shop.db")
lake = ObjectStoreLocalConnection(name="lake", path="lake", format="parquet")

@ematix.table(schema="raw")
class People:
    id: Annotated[BigInt, pk()]
    name: Text | None

@ematix.pipeline(target=People, target_connection=lake, source_connection=shop, mode="truncate")
def people():
    return "SELECT id, name FROM people"

@ematix.table(schema="raw")
class Visits:
    id: BigInt
    at: Timestamp

@ematix.pipeline(target=Visits, target_connection=lake, source_connection=shop, mode="append", window_size="1d",
                 window_start="2026-01-01")
def visits():
    return "SELECT id, at FROM visits WHERE at >= {start} AND at < {end}"

@ematix.transform(name="counted", target_connection=lake)
def counted(conn):
    return {"people": conn.fetch_scalar_int("SELECT count(*) FROM raw.people")}

@ematix.table(schema="raw")
class Slow:
    id: Annotated[BigInt, pk()]
    name: Text | None

@ematix.pipeline(target=Slow, target_connection=lake, source_connection=shop, mode="truncate")
def slow(spark):
    import pathlib

    pathlib.Path("asked").touch()
    rows = spark.range(0, 40, 1, 40)
    return rows.mapInArrow(_slowly, "id BIGINT").selectExpr("id", "'row' AS name")

def _slowly(batches):
    import time

    for batch in batches:
        time.sleep(0.2)
        yield batch
"""


class Project:
    """A folder with one pipeline and an engine folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pipelines.py").write_text(PIPELINES)
        with closing(sqlite3.connect(folder / "shop.db")) as sql, sql:
            sql.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)")
            sql.execute("INSERT INTO people VALUES (1, 'Ana'), (2, NULL)")
            sql.execute("CREATE TABLE visits (id BIGINT, at TIMESTAMP)")
            sql.execute("INSERT INTO visits VALUES (1, '2026-01-01 10:00:00'), (2, '2026-01-02 10:00:00')")
        cache = os.environ.get("EMATIX_FLOW_CACHE") or str(Path.home() / ".cache" / "ematix-flow")
        kept = {name: value for name, value in os.environ.items() if name not in ("CI", "EMATIX_FLOW_KEEP_WARM")}
        self.environment = {
            **kept, "EMATIX_FLOW_LOGS_DIR": str(folder / "logs"), "EMATIX_FLOW_RUN_LOG_PATH": str(folder / "run_log.db"),
            "EMATIX_FLOW_ENGINE": "auto", "EMATIX_FLOW_ENGINE_DIR": str(folder / "engine"), "HOME": str(folder),
            "EMATIX_FLOW_CACHE": cache, "EMATIX_FLOW_DRIVER_MEMORY": "1g", "NO_COLOR": "1",
        }  # fmt: skip

    def command(self, *words: str, python: str = sys.executable) -> list[str]:
        return [python, "-m", "ematix_flow.cli", *words]

    def flow(self, *words: str, code: int = 0, **more: str) -> Any:
        done = subprocess.run(
            self.command(*words, "--json"), cwd=self.folder, env={**self.environment, **more}, capture_output=True,
            text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == code, done.stderr + done.stdout
        return json.loads(done.stdout)

    def at_a_terminal(self, *words: str) -> tuple[int, str]:
        """Run a command with a terminal as its streams; its exit code and all it printed."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(self.command(*words), cwd=self.folder, env=self.environment,
                                   stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)  # fmt: skip
        os.close(theirs)
        printed = bytearray()

        def read() -> None:
            while True:
                try:
                    chunk = os.read(ours, 4096)
                except OSError:  # every process that had the terminal has closed it
                    return
                if not chunk:
                    return
                printed.extend(chunk)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        code = process.wait(300)
        reader.join(10)
        assert not reader.is_alive()  # an engine must not keep the terminal open
        os.close(ours)
        return code, printed.decode(errors="replace")

    def session(self, **more: str) -> dict[str, Any]:
        """Run the pipeline and tell which session it had."""
        (result,) = self.flow("run", "people", **more)["results"]
        assert (result["status"], result["targets"][0]["rows_read"]) == ("success", 2)
        found: dict[str, Any] = result["session"]
        return found

    def sessions_started(self) -> int:
        """Return how many JVMs commands have started for themselves: each has a log of its own."""
        return len(list((self.folder / "logs").glob("spark-*.log")))

    def engines(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.flow("engine", "status")
        return [engine for engine in found if engine["alive"]]


def awaited(what: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.1)
