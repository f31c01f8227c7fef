"""Runs a stream and watches it from outside: `python watch.py idle|latency COMMAND…`; what it finds is in steps.json.

The stream reads a topic of its own and writes to PostgreSQL; a message counts once a client of its own sees its row there.
"""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

RUN = Path(os.environ["BENCH_RUN"])
TOPIC = os.environ["BENCH_SOURCE_TOPIC"] = f"watched_{os.getpid()}_{time.time_ns()}"
TABLE = "bench.events"
MESSAGES, PAUSE = int(os.environ["BENCH_MESSAGES"]), (0.8, 1.2)
WARM = max(2, MESSAGES // 3)
SETTLE, QUIET = 10.0, float(os.environ["BENCH_QUIET_SECONDS"])
LOOK, PATIENCE = 0.004, 600.0
TICKS = os.sysconf("SC_CLK_TCK")


class Feed:
    """Messages one by one, and whether their rows are there."""

    def __init__(self, client: psycopg.Connection[Any]) -> None:
        self._client = client
        self._producer = Producer({"bootstrap.servers": os.environ["BENCH_SOURCE"], "linger.ms": 0})
        self.sent = 0

    def seen_after(self, is_alive: Callable[[], bool], *, look: float = LOOK) -> float:
        """Seconds from a message to its row."""
        self.sent += 1
        row = {"id": self.sent, "customer": 7, "kind": "sold", "amount": 1.25, "day": "2026-01-01", "note": "ping"}
        began = time.perf_counter()
        self._producer.produce(TOPIC, value=json.dumps(row).encode(), partition=self.sent % 2)
        self._producer.flush(10)
        while not self._is_there():
            if time.perf_counter() - began > PATIENCE or not is_alive():
                raise SystemExit(f"message {self.sent} is not in the table")
            time.sleep(look)
        return time.perf_counter() - began

    def _is_there(self) -> bool:
        try:
            return bool(self._client.execute(f"SELECT 1 FROM {TABLE} WHERE id = {self.sent}").fetchone())
        except psycopg.errors.UndefinedTable:
            return False

    def check(self) -> None:
        """Every message once, and nothing else."""
        found = self._client.execute(f"SELECT count(*), count(DISTINCT id), max(id) FROM {TABLE}").fetchone()
        if found != (self.sent, self.sent, self.sent):
            raise SystemExit(f"{self.sent} messages became {found}")


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """The stream, in a session of its own; nothing of it is left afterwards."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield child
    finally:
        child.terminate()
        with suppress(subprocess.TimeoutExpired):
            child.wait(30)
        for pid in _stats(child.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def cpu_seconds(session: int) -> dict[str, float]:
    """What the processes of a session have used, the ended ones among them, by their programs."""
    found: dict[str, float] = {}
    for name, fields in _stats(session).values():
        found[name] = found.get(name, 0.0) + sum(int(fields[place]) for place in (11, 12, 13, 14)) / TICKS
    return found


def _stats(session: int) -> dict[int, tuple[str, list[str]]]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                head, _, rest = (entry / "stat").read_text().rpartition(") ")
                if int(rest.split()[3]) == session:
                    found[int(entry.name)] = (head.partition("(")[2], rest.split())
    return found


def idle(child: subprocess.Popen[bytes]) -> dict[str, float]:
    """Percent of a core while nothing comes."""
    time.sleep(SETTLE)
    before, began = cpu_seconds(child.pid), time.monotonic()
    time.sleep(QUIET)
    after, seconds = cpu_seconds(child.pid), time.monotonic() - began
    if child.poll() is not None:
        raise SystemExit("the stream ended by itself")
    shares = {name: 100 * (used - before.get(name, 0.0)) / seconds for name, used in after.items()}
    print("percent of a core:", {name: round(share, 2) for name, share in shares.items()})
    return {"idle": max(0.01, sum(shares.values()))}


def latency(child: subprocess.Popen[bytes], feed: Feed) -> dict[str, float]:
    """Milliseconds from a message to its row, the middle of many."""
    pauses = random.Random(7)
    found = []
    for _ in range(MESSAGES):
        time.sleep(pauses.uniform(*PAUSE))
        found.append(1000 * feed.seen_after(lambda: child.poll() is None))
    print("milliseconds:", [round(one) for one in found])
    return {"median of single messages": statistics.median(found)}


def main(what: str, command: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": os.environ["BENCH_SOURCE"]})
    for made in admin.create_topics([NewTopic(TOPIC, 2, 1)]).values():
        made.result(30)
    with psycopg.connect(os.environ["BENCH_TARGET"], autocommit=True) as client:
        client.execute("DROP SCHEMA IF EXISTS bench, ematix_flow CASCADE")
        client.execute("CREATE SCHEMA bench")
        feed = Feed(client)
        with running(command) as child:
            for _ in range(WARM):
                feed.seen_after(lambda: child.poll() is None, look=10 * LOOK)
            steps = idle(child) if what == "idle" else latency(child, feed)
        feed.check()
    (RUN / "steps.json").write_text(json.dumps(steps), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
