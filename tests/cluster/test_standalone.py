"""A two-worker cluster: the same pipelines, the same results, and a worker that is killed in the middle of a load."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.places import ROOT, TestCluster, command_lines, is_alive
from tests.full import IS_FULL

ROWS = 110_000
QUICK = {
    "test_append.py": "test_append_keeps_every_row_and_stamps_the_batch",
    "test_truncate.py": "test_truncate_replaces_every_row",
    "test_merge.py": "test_merge_counts_what_it_inserts_updates_and_leaves",
    "test_scd2.py": "test_a_change_closes_the_old_version_where_the_new_one_begins",
}
SYSTEMS = ("postgres", "delta", "files-parquet")
KILLED = [("arrow", "postgres")] + [("spark", "delta"), ("arrow", "delta"), ("spark", "postgres")] * IS_FULL


@pytest.mark.full
def test_the_batch_contract_holds_on_the_cluster_in_both_lanes(cluster: TestCluster) -> None:
    """The contract suite itself, in a process whose engine is the cluster; CONTRACT_FULL=1 runs all of these files."""
    chosen = [f"tests/contract/{file}" + ("" if IS_FULL else f"::{test}") for file, test in QUICK.items()]
    which = " or ".join(SYSTEMS)
    if not IS_FULL:  # the tests below append to Delta in both lanes
        which = f"({which}) and not (delta and (append or truncate))"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", which, *chosen]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**cluster.environment, "CONTRACT_LANE": "spark,arrow"},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    passed = int(done.stdout.rpartition(" passed")[0].split()[-1])
    assert passed >= 8


@pytest.fixture(scope="module")
def slow_source(fresh_postgres: str) -> Iterator[dict[str, str]]:
    """Rows that come slowly, from a table that is read in two parts; a database and a lake to load them into."""
    import psycopg

    with psycopg.connect(fresh_postgres, autocommit=True) as owner:
        owner.execute("CREATE SCHEMA slow")
        owner.execute("CREATE TABLE slow.numbers (n bigint, text text)")
        owner.execute(
            "INSERT INTO slow.numbers SELECT n, rpad('row ' || n, 600, '.') FROM generate_series(1, %s) AS n", [ROWS]
        )
        owner.execute("CREATE ROLE slow_reader LOGIN PASSWORD 'slow reader'")
        owner.execute("GRANT USAGE ON SCHEMA slow TO slow_reader")
        owner.execute("GRANT SELECT ON slow.numbers TO slow_reader")
        owner.execute("ALTER TABLE slow.numbers ENABLE ROW LEVEL SECURITY")
        # It sleeps a millisecond at least.
        owner.execute("CREATE POLICY slowly ON slow.numbers USING (n % 16 <> 0 OR pg_sleep(0.001) IS NOT NULL)")
        yield {"LOADS_SOURCE": _as_reader(fresh_postgres)}
        owner.execute("DROP SCHEMA slow CASCADE")
        owner.execute("DROP OWNED BY slow_reader")
        owner.execute("DROP ROLE slow_reader")


class Loads:
    """The process of tests/cluster/loads.py."""

    def __init__(self, cluster: TestCluster, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.loads"], cwd=ROOT, text=True,
            env={**cluster.environment, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def begin(self, system: str, lane: str, table: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{system} {lane} {table or lane}\n")
        self.process.stdin.flush()

    def read_until(self, word: str) -> dict[str, Any]:
        """The next line with this word in it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said: dict[str, Any] = json.loads(line)
            if word in said:
                return said
        raise AssertionError(f"the process ended before it said {word}")

    def end(self) -> None:
        self.process.communicate(timeout=120)


@pytest.fixture(scope="module")
def loads(
    cluster: TestCluster, slow_source: dict[str, str], postgres_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Loads, str, Path]]:
    """One session for all loads, as in a long-lived process."""
    from tests.conftest import _new_name, _postgres, _with_database

    name, lake = _new_name(), tmp_path_factory.mktemp("lake")
    _postgres(postgres_url, f"CREATE DATABASE {name}")
    target = _with_database(postgres_url, name)
    made = Loads(cluster, {**slow_source, "LOADS_TARGET": target, "LOADS_LAKE": str(lake)})
    yield made, target, lake
    made.end()
    _postgres(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.full
@pytest.mark.parametrize(("lane", "system"), KILLED)
def test_a_worker_killed_in_the_middle_of_a_load_loses_and_doubles_nothing(
    cluster: TestCluster, loads: tuple[Loads, str, Path], lane: str, system: str
) -> None:
    process, database, lake = loads
    cluster.start()  # the worker that the test before this one killed is replaced
    process.begin(system, lane)
    seen = process.read_until("rows")
    assert 0 < seen["rows"] < ROWS
    assert not any(cluster.secret() in line for line in command_lines())
    killed = cluster.kill_a_worker()
    done = process.read_until("done")
    assert not is_alive(killed)
    assert (done["done"], done["lane"]) == (ROWS, lane)
    assert done["partitions"] == "3"  # what the user's file says, whatever we would choose
    read = _in_postgres if system == "postgres" else _in_delta
    assert Counter(read(database if system == "postgres" else str(lake), f"numbers_{lane}")) == Counter(
        range(1, ROWS + 1)
    )


@pytest.mark.full("it waits for what never comes")
def test_a_run_whose_workers_are_all_gone_does_not_wait_for_ever(
    cluster: TestCluster, loads: tuple[Loads, str, Path]
) -> None:
    process, database, _ = loads
    cluster.start()
    process.begin("postgres", "arrow", "gone")
    process.read_until("rows")
    cluster.kill_a_worker()
    cluster.kill_a_worker()
    told = process.read_until("done")
    assert told["error"] == "Unreachable"
    assert "has had no executor for this run" in told["message"]
    cluster.start()
    process.begin("postgres", "arrow", "gone")
    assert process.read_until("done")["done"] == ROWS
    assert Counter(_in_postgres(database, "numbers_gone")) == Counter(range(1, ROWS + 1))


def test_a_cluster_that_is_there_is_not_started_again_and_says_who_it_is(cluster: TestCluster) -> None:
    told = cluster.start()
    again = cluster.start()
    assert (again["started"], again["address"], again["pid"]) == (False, told["address"], told["pid"])
    assert again["registered"] == again["cores"] == 2
    assert (cluster.folder / "cluster" / "secret").stat().st_mode & 0o077 == 0
    assert cluster.secret() not in json.dumps(again)
    table = cluster.run("cluster", "status").stdout
    assert told["address"] in table


def _in_postgres(place: str, table: str) -> list[int]:
    import psycopg

    with psycopg.connect(place) as client:
        left = client.execute("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'stage_%'").fetchone()
        assert left == (0,)
        return [row[0] for row in client.execute(f"SELECT n FROM loads.{table}".encode())]


def _in_delta(place: str, table: str) -> list[int]:
    from deltalake import DeltaTable

    found: list[int] = DeltaTable(f"{place}/loads/{table}").to_pyarrow_table(columns=["n"]).column("n").to_pylist()
    return found


def _as_reader(url: str) -> str:
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return parts._replace(netloc=f"slow_reader:slow%20reader@{parts.hostname}:{parts.port}").geturl()
