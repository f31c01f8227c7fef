"""kill -9 of backfills and of live windows: whatever was killed where, every row is there once in the end."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from ematix_flow.run_log import SqliteRunLog
from ematix_flow.run_log.schedule import Interval

DAYS, ROWS_A_DAY = 4, 25
ROOT = Path(__file__).resolve().parents[2]
WHOLE = Counter(range(DAYS * ROWS_A_DAY))
_KINDS = {"postgres": "fresh_postgres", "mysql": "fresh_mariadb"}
_FILES = {"sqlite": "shop.db", "duckdb": "shop.duckdb", "delta": "lake", "parquet": "files"}


class Place:
    """A target, a source of four days, a run log."""

    def __init__(self, kind: str, place: str, folder: Path) -> None:
        self.kind, self.place, self.folder = kind, place, folder
        self.schema = f"crash_{folder.name.replace('-', '_')[-20:].lower()}"
        with closing(sqlite3.connect(folder / "source.db")) as source, source:
            source.execute("CREATE TABLE readings (n BIGINT, at TIMESTAMP)")
            for n in range(DAYS * ROWS_A_DAY):
                day, minute = divmod(n, ROWS_A_DAY)
                source.execute("INSERT INTO readings VALUES (?, ?)", (n, f"2026-01-{day + 1:02d} 10:{minute:02d}:00"))

    def start(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "CRASH_TARGET": f"{self.kind}|{self.place}",
            "CRASH_SCHEMA": self.schema,
            "CRASH_SOURCE": str(self.folder / "source.db"),
            "HOME": str(self.folder),
            "EMATIX_FLOW_RUN_LOG_PATH": str(self.folder / "run_log.db"),
            "EMATIX_FLOW_STAGE_DIR": str(self.folder / "stage"),
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        }
        environment.pop("EMATIX_FLOW_FAULT", None)
        command = [sys.executable, "-m", "ematix_flow.cli", *words, "--module", "tests.crash.windowed_pipelines"]
        return subprocess.Popen(command, env={**environment, **variables}, cwd=ROOT, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)  # fmt: skip

    def flow(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        with self.start(*words, **variables) as process:
            out, err = process.communicate(timeout=240)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def backfill(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.flow("backfill", "readings", *words, "--to", "2026-01-05", **variables)

    def ledger(self) -> list[Interval]:
        with closing(SqliteRunLog(self.folder / "run_log.db")) as log:
            return log.intervals("readings")

    def found(self) -> Counter[int]:
        """Every n in the target, by the system's own client."""
        return Counter(_READERS[self.kind](self.place, self.schema))


def _postgres(place: str, schema: str) -> list[int]:
    import psycopg

    with psycopg.connect(place) as client:
        if client.execute("SELECT to_regclass(%s)", [f"{schema}.readings"]).fetchone() == (None,):
            return []
        return [row[0] for row in client.execute(f"SELECT n FROM {schema}.readings".encode())]


def _mysql(place: str, schema: str) -> list[int]:
    from urllib.parse import urlsplit

    import pymysql

    parts = urlsplit(place)
    with (
        pymysql.connect(
            host=parts.hostname, port=parts.port or 3306, user=parts.username, password=parts.password or ""
        ) as client,
        client.cursor() as cursor,
        suppress(pymysql.err.ProgrammingError, pymysql.err.OperationalError),
    ):
        cursor.execute(f"SELECT n FROM `{schema}`.readings")
        return [row[0] for row in cursor.fetchall()]
    return []


def _sqlite(place: str, schema: str) -> list[int]:
    with closing(sqlite3.connect(place)) as client, suppress(sqlite3.OperationalError):
        return [row[0] for row in client.execute(f"SELECT n FROM {schema}_readings")]
    return []


def _duckdb(place: str, schema: str) -> list[int]:
    import duckdb

    if not Path(place).exists():
        return []
    with duckdb.connect(place, read_only=True) as client, suppress(duckdb.CatalogException):
        return [row[0] for row in client.execute(f"SELECT n FROM {schema}.readings").fetchall()]
    return []


def _delta(place: str, schema: str) -> list[int]:
    from deltalake import DeltaTable

    path = f"{place}/{schema}/readings"
    if not DeltaTable.is_deltatable(path):
        return []
    rows: list[int] = DeltaTable(path).to_pyarrow_table(columns=["n"]).column("n").to_pylist()
    return rows


def _parquet(place: str, schema: str) -> list[int]:
    import pyarrow.dataset as ds

    files = [file for file in Path(place, schema, "readings").rglob("*.parquet") if not _is_hidden(file)]
    rows: list[int] = ds.dataset(files).to_table(columns=["n"]).column("n").to_pylist() if files else []
    return rows


def _is_hidden(file: Path) -> bool:
    return any(part.startswith((".flow", "_")) for part in file.parts)


_READERS: dict[str, Callable[[str, str], Any]] = {
    "postgres": _postgres, "mysql": _mysql, "sqlite": _sqlite, "duckdb": _duckdb, "delta": _delta, "parquet": _parquet,
}  # fmt: skip


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    kind = request.param
    where = request.getfixturevalue(_KINDS[kind]) if kind in _KINDS else str(tmp_path / _FILES[kind])
    return Place(kind, where, tmp_path)


def statuses(place: Place) -> list[str]:
    return [item.status for item in place.ledger()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    [
        "postgres",
        *(pytest.param(twin, marks=pytest.mark.full("a twin of PostgreSQL")) for twin in ("mysql", "sqlite", "duckdb")),
        *(pytest.param(lake, marks=pytest.mark.full("a lake is killed below")) for lake in ("delta", "parquet")),
    ],
    indirect=True,
)
def test_a_window_killed_between_the_commit_and_the_ledger_is_not_loaded_twice(place: Place) -> None:
    killed = place.backfill("--chunk", "1d", EMATIX_FLOW_FAULT="after_publish")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert place.found() == Counter(range(ROWS_A_DAY))
    assert statuses(place) == ["running", "planned", "planned", "planned"]
    again = place.backfill("--resume", "--json")
    assert again.returncode == 0, again.stderr
    told = json.loads(again.stdout)
    assert (told["windows"], told["loaded"], told["rows"]) == (DAYS, DAYS, DAYS * ROWS_A_DAY)
    assert place.found() == WHOLE
    assert statuses(place) == ["done"] * DAYS
    assert [item.attempt for item in place.ledger()] == [2, 1, 1, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        "mid_stage",
        *(
            pytest.param(point, marks=pytest.mark.full("a kill that leaves less behind"))
            for point in ("before_stage", "before_publish")
        ),
    ],
)
@pytest.mark.parametrize("place", [pytest.param("postgres", marks=pytest.mark.full), "parquet"], indirect=True)
def test_a_window_killed_before_its_commit_is_simply_loaded_again(place: Place, point: str) -> None:
    killed = place.backfill(EMATIX_FLOW_FAULT=point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert place.found() == Counter()
    again = place.backfill()
    assert again.returncode == 0, again.stderr
    assert place.found() == WHOLE


@pytest.mark.full
@pytest.mark.parametrize("place", ["postgres", "parquet"], indirect=True)
def test_a_live_run_killed_after_its_commit_is_finished_by_the_next_one(place: Place) -> None:
    killed = place.flow("run", "readings", EMATIX_FLOW_FAULT="after_publish")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert place.found() == WHOLE
    (left,) = place.ledger()
    again = place.flow("run", "readings", "--json")
    assert again.returncode == 0, again.stderr
    assert place.found() == WHOLE
    first, *later = place.ledger()
    assert ((first.start, first.end), first.status) == ((left.start, left.end), "done")
    assert [item.start for item in later] == [left.end][: len(later)]


@pytest.mark.full
@pytest.mark.parametrize("place", ["postgres", "parquet"], indirect=True)
def test_workers_and_their_parent_may_be_killed_in_the_middle_of_their_work(place: Place) -> None:
    words = ("backfill", "readings", "--to", "2026-01-05", "--chunk", "3h", "--parallel", "2")
    loaded = 0
    for victims in (_one_worker, _the_parent, _all_processes):
        parent = place.start(*words, CRASH_PACE="0.3")
        _until(_is_busy, place, parent, loaded)
        workers = _children(parent.pid)
        for victim in victims(parent.pid, workers):
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        parent.kill()
        parent.communicate()
        _until(_are_gone, workers)
        loaded = statuses(place).count("done")
        assert loaded < 32, "there was nothing left to be killed in"
    last = place.flow(*words, "--json")
    assert last.returncode == 0, last.stderr
    assert place.found() == WHOLE
    assert statuses(place) == ["done"] * 32
    assert max(item.attempt for item in place.ledger()) > 1


def _one_worker(parent: int, workers: list[int]) -> list[int]:
    return workers[:1]


def _the_parent(parent: int, workers: list[int]) -> list[int]:
    return [parent]


def _all_processes(parent: int, workers: list[int]) -> list[int]:
    return [*workers, parent]


def _is_busy(place: Place, parent: subprocess.Popen[str], more_than: int) -> bool:
    """Two workers have a window each, and one more than before is loaded."""
    assert parent.poll() is None, parent.communicate()
    found = statuses(place) if (place.folder / "run_log.db").exists() else []
    return found.count("done") > more_than and found.count("running") >= 2


def _are_gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def _children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


def _until(condition: Callable[..., bool], *of: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition(*of):
        assert time.monotonic() < deadline
        time.sleep(0.2)
