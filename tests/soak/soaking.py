"""Runs pipelines as a person at a terminal does, kills their engine at random, and compares what arrived."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ematix_flow.foundation.processes import descendants, memory_bytes

PIPELINES = ("to_duckdb", "to_delta", "merged", "to_parquet")
ROWS_PER_RUN = 7
WINDOW = 40  # rows that `merged` and `to_parquet` look at
_KILLS_END = 0.6  # of all runs: the engine of the remaining ones lives until the end, so that its memory can be judged
_TRIES = 5


@dataclass
class Report:
    """What happened, and what is wrong with it."""

    seconds: list[float] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    killed: int = 0
    failed: list[str] = field(default_factory=list)
    """The message of every run that the death of its engine ended."""
    memory: list[tuple[int, int, int]] = field(default_factory=list)
    """Run, process of the engine, resident bytes of it and its descendants."""
    live_heap: list[tuple[int, int]] = field(default_factory=list)
    """Run, bytes that are in use in the heap of the last engine."""
    wrong: list[str] = field(default_factory=list)

    def shown(self) -> str:
        """Return the report for people."""
        last = self.memory_of_the_last_engine()
        quantiles = statistics.quantiles(self.seconds, n=20)
        lines = [
            f"{len(self.seconds)} runs, {self.killed} kills, {len(self.failed)} runs failed and were run again",
            f"seconds of a run: median {statistics.median(self.seconds):.2f}, 95th percentile {quantiles[18]:.2f}",
            f"engines: {dict(self.kinds)}",
            f"memory of the last engine, in MB: {[round(size / 2**20) for size in last]}",
            f"live heap of the last engine, in MB: {[(run, round(size / 2**20)) for run, size in self.live_heap]}",
            *(f"failed: {message}" for message in sorted(set(self.failed))),
            *(f"WRONG: {message}" for message in self.wrong),
        ]
        return "\n".join(lines)

    def memory_of_the_last_engine(self) -> list[int]:
        """Return the samples of the engine that was there at the end."""
        return [size for _, pid, size in self.memory if pid == self.memory[-1][1]] if self.memory else []


class Soak:
    """A project in a folder of its own, with an engine folder of its own."""

    def __init__(self, folder: Path, *, runs: int, kills: int, seed: int) -> None:
        self.folder, self.runs = folder, runs
        self._random = random.Random(seed)
        self._kills = set(self._random.sample(range(1, max(kills + 1, int(runs * _KILLS_END))), kills))
        self.report = Report()
        shutil.copy(Path(__file__).with_name("pipelines.py"), folder / "pipelines.py")
        with closing(sqlite3.connect(folder / "shop.db")) as sql, sql:
            sql.execute("CREATE TABLE events (n INTEGER PRIMARY KEY, text TEXT NOT NULL)")
        cache = os.environ.get("EMATIX_FLOW_CACHE") or str(Path.home() / ".cache" / "ematix-flow")
        self.environment = {
            **os.environ, "EMATIX_FLOW_LOGS_DIR": str(folder / "logs"), "EMATIX_FLOW_RUN_LOG_PATH": str(folder / "log.db"),
            "EMATIX_FLOW_ENGINE": "auto", "EMATIX_FLOW_ENGINE_DIR": str(folder / "engine"), "HOME": str(folder),
            "EMATIX_FLOW_CACHE": cache, "EMATIX_FLOW_DRIVER_MEMORY": "1g", "EMATIX_FLOW_KEEP_WARM": "1",
            "EMATIX_FLOW_MODULE": "pipelines",
        }  # fmt: skip

    def soak(self) -> Report:
        """Run, kill and compare; the report says what is wrong."""
        try:
            for number in range(self.runs):
                self._insert(number)
                self._run_until_it_succeeds(number)
                self._sample(number)
            for name in PIPELINES:  # so that every target has had the last rows
                self._succeed(name)
            self._compare()
            self._judge_memory()
        finally:
            self._flow("engine", "stop")
        left = [file.name for file in (self.folder / "engine").iterdir() if file.suffix not in (".start", ".log")]
        self.report.wrong += [f"left behind: {left}"] * bool(left)
        return self.report

    def _insert(self, number: int) -> None:
        first = number * ROWS_PER_RUN
        rows = [(n, f"row {n} of run {number}") for n in range(first, first + ROWS_PER_RUN)]
        with closing(sqlite3.connect(self.folder / "shop.db")) as sql, sql:
            sql.executemany("INSERT INTO events VALUES (?, ?)", rows)

    def _run_until_it_succeeds(self, number: int) -> None:
        killer = None
        if number in self._kills:
            usual = statistics.median(self.report.seconds[-20:] or [2.0])
            killer = threading.Timer(self._random.uniform(0, usual), self._kill_the_engine)
            killer.start()
        self._succeed(PIPELINES[number % len(PIPELINES)])
        if killer is not None:
            killer.join()

    def _succeed(self, name: str) -> None:
        for _ in range(_TRIES):
            began = time.monotonic()
            done = self._flow("run", name)
            if done.returncode == 0:
                self.report.seconds.append(time.monotonic() - began)
                (result,) = json.loads(done.stdout)["results"]
                self.report.kinds[(result.get("session") or {}).get("kind", "none")] += 1
                return
            self.report.failed.append(_message(done))
            if "Traceback" in done.stderr or "went away" not in self.report.failed[-1]:
                self.report.wrong.append(f"{name} failed without saying why: {done.stdout} {done.stderr[-800:]}")
        self.report.wrong.append(f"{name} failed {_TRIES} times: {self.report.failed[-1]}")

    def _flow(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "ematix_flow.cli", *words, "--json"], cwd=self.folder, env=self.environment,
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip

    def _engine(self) -> dict[str, Any] | None:
        for file in sorted((self.folder / "engine").glob("*.json")):
            try:
                kept: dict[str, Any] = json.loads(file.read_text())
            except (OSError, ValueError):
                continue
            pid = int(kept["worker"].split(":")[1])
            if Path(f"/proc/{pid}").exists():
                return {**kept, "pid": pid}
        return None

    def _kill_the_engine(self) -> None:
        """As the kernel does when memory runs out: now the Python process of the engine, now its JVM, now both."""
        engine = self._engine()
        if engine is None:
            return
        java = _java_of(engine["pid"])
        for pid in self._random.choice(([engine["pid"]], [*java], [engine["pid"], *java])):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return
        self.report.killed += 1

    def _sample(self, number: int) -> None:
        engine = self._engine()
        if engine is None:
            return
        size = memory_bytes(engine["pid"])
        if size is not None:
            self.report.memory.append((number, engine["pid"], size))
        is_quiet = number > self.runs * _KILLS_END and not number % max(1, self.runs // 10)
        if (is_quiet or number == self.runs - 1) and shutil.which("jcmd"):
            self.report.live_heap += [(number, size) for java in _java_of(engine["pid"]) if (size := _live_heap(java))]

    def _compare(self) -> None:
        with closing(sqlite3.connect(self.folder / "shop.db")) as sql:
            events = Counter(sql.execute("SELECT n, text FROM events").fetchall())
        merged = Counter(dict.fromkeys(events, 1))
        last = max(n for n, _ in events)
        for name, expected, found in (
            ("append to DuckDB", events, self._in_duckdb()),
            ("append to Delta", events, self._in_delta("appended")),
            ("merge into Delta", merged, self._in_delta("merged")),
            ("truncate of Parquet", Counter(row for row in events if row[0] > last - WINDOW), self._in_parquet()),
        ):
            if found != expected:
                lost, doubled = expected - found, found - expected
                self.report.wrong.append(f"{name}: lost {dict(lost)}, doubled or foreign {dict(doubled)}")

    def _in_duckdb(self) -> Counter[Any]:
        import duckdb

        with duckdb.connect(str(self.folder / "house.duckdb"), read_only=True) as house:
            return Counter(house.execute("SELECT n, text FROM soak.appended").fetchall())

    def _in_delta(self, table: str) -> Counter[Any]:
        from deltalake import DeltaTable

        found = DeltaTable(str(self.folder / "lake" / "soak" / table)).to_pyarrow_table(columns=["n", "text"])
        return Counter(tuple(row.values()) for row in found.to_pylist())

    def _in_parquet(self) -> Counter[Any]:
        import pyarrow.parquet as pq

        found = pq.read_table(self.folder / "folder" / "soak" / "merged", columns=["n", "text"])
        return Counter(tuple(row.values()) for row in found.to_pylist())

    def _judge_memory(self) -> None:
        """Compare the second quarter of the last engine's life with the last one: the first fills caches."""
        samples = self.report.memory_of_the_last_engine()
        if len(samples) >= 100:
            quarter = len(samples) // 4
            before, after = statistics.median(samples[quarter : 2 * quarter]), statistics.median(samples[-quarter:])
            if after > before * 1.15:
                self.report.wrong.append(f"memory grew from {before / 2**20:.0f} to {after / 2**20:.0f} MB")
        heap = [size for _, size in self.report.live_heap]
        if len(heap) >= 3 and heap[-1] > heap[0] * 1.25:
            self.report.wrong.append(f"the live heap grew from {heap[0] / 2**20:.0f} to {heap[-1] / 2**20:.0f} MB")


def _message(done: subprocess.CompletedProcess[str]) -> str:
    """Return the reason that a command gave for its failure."""
    try:
        told = json.loads(done.stdout)
    except ValueError:
        return done.stderr.strip()[-300:]
    results = told.get("results") or [told]
    return str(results[0].get("message") or results[0].get("error_message") or results[0].get("error") or told)[:300]


def _java_of(pid: int) -> list[int]:
    return [child for child in descendants([pid]) if _name(child) == "java"]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _live_heap(java: int) -> int | None:
    """Return the bytes that are still in use after a full collection."""
    done = subprocess.run(["jcmd", str(java), "GC.class_histogram"], capture_output=True, text=True, check=False)
    total = [line for line in done.stdout.splitlines() if line.startswith("Total")]
    return int(total[0].split()[2]) if total else None
