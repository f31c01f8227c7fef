"""A project on disk whose jobs write down when they begin and end, and schedulers over it as real processes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_HEAD = """
import os, pathlib, time
from ematix_flow import ematix
from ematix_flow.pipeline import register

HERE = pathlib.Path(__file__).parent

def note(kind, name):
    line = f"{kind} {name} {os.getpid()} {time.time():.6f}\\n".encode()
    file = os.open(HERE / "notes.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line)
    os.close(file)

def work(name, seconds):
    note("begin", name)
    until = time.time() + seconds
    while time.time() < until:
        time.sleep(0.02)
    if (HERE / (name + ".broken")).exists():
        raise ConnectionError(name + " is broken")
    note("end", name)
    return {"name": name}
"""
_JOB = """
@register(name="{name}", schedule={schedule!r}, retry={retry!r}, depends_on={depends_on!r})
def {name}():
    print("hello from {name}")
    return work("{name}", {seconds})
"""


@dataclass(frozen=True)
class JobText:
    """One job of the project."""

    name: str
    schedule: str | None = None
    seconds: float = 0.0
    retry: dict[str, Any] | None = None
    depends_on: tuple[str, ...] = ()

    def code(self) -> str:
        return _JOB.format(
            name=self.name,
            schedule=self.schedule,
            retry=self.retry,
            depends_on=list(self.depends_on),
            seconds=self.seconds,
        )


@dataclass(frozen=True)
class Note:
    """One line that a job wrote."""

    kind: str
    name: str
    pid: int
    at: float


@dataclass
class Project:
    """The folder, its run log and the processes that were started on it."""

    folder: Path
    jobs: list[JobText]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "pipelines.py").write_text(_HEAD + "".join(job.code() for job in self.jobs))
        self.environment = {
            **os.environ,
            "EMATIX_FLOW_RUN_LOG_PATH": str(self.folder / "run_log.db"),
            "EMATIX_FLOW_LOGS_DIR": str(self.folder / "logs"),
            "HOME": str(self.folder),
        }

    def flow(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """One command."""
        command = [sys.executable, "-m", "ematix_flow.cli", *words]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=120
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def json(self, *words: str) -> Any:
        """What a command answers."""
        return json.loads(self.flow(*words, "--json").stdout)

    def scheduler(self, *words: str, poll: float = 0.5) -> subprocess.Popen[str]:
        """A scheduler that stays."""
        command = [sys.executable, "-m", "ematix_flow.cli", "scheduler", "--json", "--poll-interval", str(poll), *words]
        number = len(self.started)
        output = (self.folder / f"scheduler-{number}.out").open("w")
        errors = (self.folder / f"scheduler-{number}.err").open("w")
        process = subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=output, stderr=errors, text=True
        )
        self.started.append(process)
        return process

    def events(self) -> list[dict[str, str]]:
        """Everything that schedulers said; workers write to the same streams, and not in JSON."""
        found = []
        for file in sorted(self.folder.glob("scheduler-*.out")):
            for line in file.read_text().splitlines():
                if line.startswith('{"at"'):
                    found.append(json.loads(line))
        return found

    def output_tail(self) -> str:
        """For the message of a failed assertion."""
        return "\n".join(file.read_text()[-3000:] for file in sorted(self.folder.glob("scheduler-*.*")))

    def notes(self) -> list[Note]:
        """What jobs wrote, in order."""
        file = self.folder / "notes.txt"
        lines = file.read_text().splitlines() if file.exists() else []
        return [Note(kind, name, int(pid), float(at)) for kind, name, pid, at in (line.split() for line in lines)]

    def ended(self, name: str) -> int:
        """How often a job came to its end."""
        return sum(note.kind == "end" and note.name == name for note in self.notes())

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """The run log by SQLite's own client."""
        with sqlite3.connect(f"file:{self.folder / 'run_log.db'}?mode=ro", uri=True, timeout=20) as log:
            return log.execute(sql).fetchall()

    def wait_until(self, met: Callable[[], bool], *, seconds: float = 30, what: str = "it") -> None:
        """Wait for something, and tell what schedulers said when it does not come."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if met():
                return
            time.sleep(0.1)
        raise AssertionError(f"{what} did not happen in {seconds} s\n{self.output_tail()}")

    def close(self) -> None:
        """End what is left."""
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()


def overlaps(notes: list[Note]) -> list[tuple[Note, Note]]:
    """Pairs of runs of one job that were at work at the same time; a run that was killed ends with its process."""
    begun: dict[str, dict[int, Note]] = {}
    found = []
    for note in sorted(notes, key=lambda item: item.at):
        running = begun.setdefault(note.name, {})
        if note.kind == "begin":
            found += [(other, note) for other in running.values() if _exists(other.pid)]
            running[note.pid] = note
        else:
            running.pop(note.pid, None)
    return found


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
