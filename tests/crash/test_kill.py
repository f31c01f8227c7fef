"""kill -9 at each named point of the write path, then the same command again: no row lost, none doubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ematix_flow.foundation.fault import POINTS

ROWS = 2000
ROOT = Path(__file__).resolve().parents[2]


KILLED = {-signal.SIGKILL, 128 + signal.SIGKILL}
"""What `flow` ends with: killed itself, or as a shell says it where its fork beside a warm engine was killed."""


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The environment of the process: where it writes, its engine, and a home of its own."""
    kind, engine = request.param
    place = str(tmp_path / "shop.duckdb") if kind == "duckdb" else str(tmp_path / "lake")
    if kind == "postgres":
        place = request.getfixturevalue("fresh_postgres")
    return {
        "CRASH_TARGET": f"{kind}|{place}",
        "CRASH_SCHEMA": f"crash_{tmp_path.name.replace('-', '_')[-20:]}",
        "HOME": str(tmp_path),
        "EMATIX_FLOW_RUN_LOG_PATH": str(tmp_path / "run_log.db"),
        "EMATIX_FLOW_STAGE_DIR": str(tmp_path / "stage"),
        **(request.getfixturevalue("warm_engine") if engine == "warm" else {}),
    }


def flow_run(
    target: dict[str, str], name: str = "append_numbers", *, fault: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `flow run` in a process of its own."""
    environment = {**os.environ, **target, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    environment.pop("EMATIX_FLOW_FAULT", None)
    if fault:
        environment["EMATIX_FLOW_FAULT"] = fault
    command = [sys.executable, "-m", "ematix_flow.cli", "run", "--module", "tests.crash.pipelines", name]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


def found(target: dict[str, str]) -> Counter[int]:
    """Every n in the target, by the system's own client; nothing when the table is not there yet."""
    kind, place = target["CRASH_TARGET"].split("|")
    schema = target["CRASH_SCHEMA"]
    return Counter(_READERS[kind](place, schema))


def _postgres(place: str, schema: str) -> list[int]:
    import psycopg

    with psycopg.connect(place) as client:
        if client.execute("SELECT to_regclass(%s)", [f"{schema}.numbers"]).fetchone() == (None,):
            return []
        return [row[0] for row in client.execute(f"SELECT n FROM {schema}.numbers")]


def _duckdb(place: str, schema: str) -> list[int]:
    import duckdb

    if not Path(place).exists():
        return []
    with duckdb.connect(place, read_only=True) as client:
        known = client.execute(
            "SELECT 1 FROM information_schema.tables WHERE table_schema = ? AND table_name = 'numbers'", [schema]
        )
        return (
            [row[0] for row in client.execute(f"SELECT n FROM {schema}.numbers").fetchall()] if known.fetchall() else []
        )


def _delta(place: str, schema: str) -> list[int]:
    from deltalake import DeltaTable

    path = f"{place}/{schema}/numbers"
    return (
        DeltaTable(path).to_pyarrow_table(columns=["n"]).column("n").to_pylist()
        if DeltaTable.is_deltatable(path)
        else []
    )


_READERS: dict[str, Any] = {"postgres": _postgres, "duckdb": _duckdb, "delta": _delta}


# By default one kill on either side of the commit, in a database and in a lake, of commands that share an engine.
BY_DEFAULT = [("postgres", "after_publish"), ("delta", "before_publish")]


def _case(system: str, point: str, engine: str) -> Any:
    marks = () if engine == "warm" else pytest.mark.full("the same kill with a JVM for every command")
    return pytest.param((system, engine), point, marks=marks, id=f"{system}-{point}-{engine}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "point"),
    [
        *(_case(system, point, "warm") for system, point in BY_DEFAULT),
        *(_case(system, point, "local") for system in ("postgres", "duckdb", "delta") for point in POINTS),
    ],
    indirect=["target"],
)
def test_a_run_killed_at_any_point_can_simply_be_run_again(target: dict[str, str], point: str) -> None:
    killed = flow_run(target, fault=point)
    assert killed.returncode in KILLED, killed.stderr
    whole = Counter(range(ROWS))
    assert found(target) == (whole if point == "after_publish" else Counter())
    again = flow_run(target)
    assert again.returncode == 0, again.stderr
    assert found(target) == whole


# PostgreSQL puts the stage in the table's place; by default the kill before that, whose half would be the worst.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "point"),
    [_case("postgres", "before_publish", "warm"), *(_case("postgres", point, "local") for point in POINTS)],
    indirect=["target"],
)
def test_a_replaced_table_has_the_rows_of_one_day_whenever_its_run_is_killed(
    target: dict[str, str], point: str
) -> None:
    assert flow_run(target, "replace_numbers").returncode == 0
    before, first = found(target), _identity(target)
    tomorrow = {**target, "CRASH_DAY": "1"}
    killed = flow_run(tomorrow, "replace_numbers", fault=point)
    assert killed.returncode in KILLED, killed.stderr
    after = Counter(range(ROWS, 2 * ROWS))
    assert found(target) == (after if point == "after_publish" else before)
    again = flow_run(tomorrow, "replace_numbers")
    assert again.returncode == 0, again.stderr
    assert found(target) == after
    assert _identity(target) != first, "the rows were written into the table, which this test is not about"
    assert _stages(target) == []


def _identity(target: dict[str, str]) -> int:
    """Return the object id of the table, which changes when another takes its place."""
    import psycopg

    with psycopg.connect(target["CRASH_TARGET"].split("|")[1]) as client:
        row = client.execute("SELECT to_regclass(%s)::oid", [f"{target['CRASH_SCHEMA']}.numbers"]).fetchone()
        return int(row[0]) if row else 0


def _stages(target: dict[str, str]) -> list[str]:
    """Return the stages that runs have left behind."""
    import psycopg

    with psycopg.connect(target["CRASH_TARGET"].split("|")[1]) as client:
        rows = client.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'stage%'").fetchall()
        return [row[0] for row in rows]


# By default the kill with new files in the table's folder that its log does not name yet.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "point"),
    [
        _case("delta", "before_log_entry", "warm"),
        *(_case("delta", point, "local") for point in (*POINTS, "before_log_entry")),
    ],
    indirect=["target"],
)
def test_a_small_delta_table_is_that_of_one_day_whenever_its_run_is_killed(target: dict[str, str], point: str) -> None:
    assert flow_run(target, "merge_numbers").returncode == 0
    before, after = [(n, "day 0") for n in range(ROWS)], [(n, "day 1") for n in range(ROWS + 1)]
    assert _texts(target) == before
    tomorrow = {**target, "CRASH_DAY": "1"}
    killed = flow_run(tomorrow, "merge_numbers", fault=point)
    assert killed.returncode in KILLED, killed.stderr
    assert _texts(target) == (after if point == "after_publish" else before)
    again = flow_run(tomorrow, "merge_numbers")
    assert again.returncode == 0, again.stderr
    assert _texts(target) == after
    assert _strays(target) == set()


# By default the kill between the observations, which are there then, and the table that they explain.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "point"),
    [
        _case("delta", "after_observations", "warm"),
        *(_case("delta", point, "local") for point in ("before_publish", "before_log_entry", "after_publish")),
    ],
    indirect=["target"],
)
def test_a_small_history_by_event_time_knows_only_what_was_published(target: dict[str, str], point: str) -> None:
    assert flow_run(target, "observe_numbers").returncode == 0
    killed = flow_run({**target, "CRASH_DAY": "1"}, "observe_numbers", fault=point)
    assert killed.returncode in KILLED, killed.stderr
    again = flow_run({**target, "CRASH_DAY": "2"}, "observe_numbers")
    assert again.returncode == 0, again.stderr
    days = (0, 1, 2) if point == "after_publish" else (0, 2)
    every = sorted((n, f"day {day}") for n in range(ROWS) for day in days)
    assert _texts(target) == _texts(target, "numbers__observations") == every
    assert _strays(target) == set()
    assert [name for name in _strays(target, "numbers__observations") if name.startswith("part-flow-")] == []


def _numbers(target: dict[str, str], name: str = "numbers") -> Any:
    from deltalake import DeltaTable

    return DeltaTable(f"{target['CRASH_TARGET'].split('|')[1]}/{target['CRASH_SCHEMA']}/{name}")


def _texts(target: dict[str, str], name: str = "numbers") -> list[tuple[int, str]]:
    rows = _numbers(target, name).to_pyarrow_table(columns=["n", "text"]).to_pylist()
    return sorted((row["n"], row["text"]) for row in rows)


def _strays(target: dict[str, str], name: str = "numbers") -> set[str]:
    """Return the files in the table's folder that no version of it names."""
    folder = Path(_numbers(target, name).table_uri.removeprefix("file://"))
    logged = "".join(file.read_text() for file in (folder / "_delta_log").glob("*.json"))
    return {file.name for file in folder.glob("*.parquet") if file.name not in logged}
